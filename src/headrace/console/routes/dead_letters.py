"""Dead letters over HTTP: seen with their reasons, and sent again."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Producer
from starlette.responses import Response

from headrace.client import Connection, consumer, producer
from headrace.client.deadletters import (
    DeadLetter,
    Redrive,
    dead_letter_topics,
    is_dead_letter_topic,
    redrive_progress,
)
from headrace.console.api import (
    ANYTHING,
    Call,
    LivePart,
    Parameter,
    Route,
    RouteBody,
    RouteResponse,
    Schema,
    array,
    integer,
    json_response,
    mapping,
    nullable,
    object_of,
    ref,
    string,
)
from headrace.console.ask.dead_letters import (
    DeadLetterPredicate,
    dead_letter_to_json,
    format_cursor,
    newest_dead_letters,
    parse_cursor,
)
from headrace.console.context import ConsoleContext
from headrace.console.problems import ProblemError
from headrace.console.security import Role

__all__ = ["LIVE", "ROUTES", "SCHEMAS"]

_MOST_DEAD_LETTERS = 1_000
_DEFAULT_LIMIT = 100


async def get_dead_letters(call: Call) -> Response:
    return json_response(await call.context.workers.run(_listed, call))


def _listed(call: Call) -> dict[str, Any]:
    log, wanted = call.context.clients.log(), call["topic"]
    with call.context.clients.fetcher() as fetcher:
        topics = dead_letter_topics(log, fetcher, call.context.dead_letter_counts)
    names = [each["topic"] for each in topics if wanted in (None, each["topic"])]
    if wanted is not None and not names:
        raise ProblemError(404, f"there is no dead-letter topic {wanted[:100]!r}")
    sent = {name: redrive_progress(log, name) for name in names}
    before = None if call["cursor"] is None else parse_cursor(call["cursor"])
    limit = min(call["limit"] or _DEFAULT_LIMIT, call.context.settings.max_rows)
    with call.context.clients.fetcher() as fetcher:
        page = newest_dead_letters(fetcher, names, before, limit, _keeping(call["reason"], call["source"]))
    return {
        "letters": [
            dead_letter_to_json(topic, each, said, sent[topic]) for topic, each, said in page.letters
        ],
        "next": format_cursor(page.before),
        "topics": topics,
    }


def _keeping(reason: str | None, source: str | None) -> DeadLetterPredicate:
    wanted = None if reason is None else reason.casefold()

    def keep(letter: DeadLetter) -> bool:
        if source is not None and letter.topic != source:
            return False
        return wanted is None or wanted in f"{letter.reason} {letter.error}".casefold()

    return keep


class _Clients:
    """The clients with which letters are sent again."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def reader(self, **properties: Any) -> Consumer:
        group = properties.pop("group.id")
        return consumer(
            self._connection,
            group,
            enable_auto_offset_store=False,
            allow_auto_create_topics=False,
            enable_partition_eof=True,
            log_level=0,
            error_cb=lambda _: None,
            **properties,
        )

    def producer(self, **properties: Any) -> Producer:
        return producer(
            self._connection, enable_idempotence=True, log_level=0, error_cb=lambda _: None, **properties
        )


async def post_redrive(call: Call) -> Response:
    """All that wait in a topic, or letters by their places; each once, in transactions."""
    body = call.json_object()
    work = _chosen(body) if "letters" in body else {_topic(body): None}
    most = _most(body)
    call.notes["letters"] = {
        topic: None if only is None else sum(map(len, only.values())) for topic, only in work.items()
    }
    return json_response(await call.context.workers.run(_redriven, call.context, work, most))


def _redriven(
    context: ConsoleContext, work: Mapping[str, dict[int, set[int]] | None], most: int | None
) -> dict[str, Any]:
    log, sent, skipped, targets = context.clients.log(), 0, 0, dict[str, int]()
    for topic, only in work.items():
        again = Redrive(
            log, topic, topic, _Clients(context.connection), most=most, of_streams=True, only=only
        )
        again.run()
        sent, skipped = sent + again.sent, skipped + again.skipped
        for name, count in again.targets.items():
            targets[name] = targets.get(name, 0) + count
    return {"sent": sent, "skipped": skipped, "to": targets}


def _topic(body: Mapping[str, Any]) -> str:
    topic = body.get("topic")
    if not isinstance(topic, str) or not is_dead_letter_topic(topic):
        raise ProblemError(
            400, "topic must name a dead-letter topic, such as shop.dead; or pass letters", kind="bad-body"
        )
    return topic


def _most(body: Mapping[str, Any]) -> int | None:
    most = body.get("most")
    if most is not None and (type(most) is not int or most < 1):
        raise ProblemError(400, "most must be a whole number of at least 1", kind="bad-body")
    return most


def _chosen(body: Mapping[str, Any]) -> dict[str, dict[int, set[int]] | None]:
    """Places by topic and partition."""
    letters = body["letters"]
    if not isinstance(letters, list) or not 0 < len(letters) <= _MOST_DEAD_LETTERS:
        raise ProblemError(
            400, f"letters must be a list of 1 to {_MOST_DEAD_LETTERS:,} positions", kind="bad-body"
        )
    found: dict[str, dict[int, set[int]]] = {}
    for each in letters:
        place = each if isinstance(each, dict) else {}
        partition, offset = place.get("partition"), place.get("offset")
        if type(partition) is not int or type(offset) is not int or min(partition, offset) < 0:
            raise ProblemError(
                400, "a dead letter is identified by topic, partition and offset", kind="bad-body"
            )
        found.setdefault(_topic(place), {}).setdefault(partition, set()).add(offset)
    return dict(found)


async def live_dead_letters(context: ConsoleContext) -> Any:
    return {"waiting": await context.workers.run(_waiting, context)}


def _waiting(context: ConsoleContext) -> int:
    with context.clients.fetcher() as fetcher:
        topics = dead_letter_topics(context.clients.log(), fetcher, context.dead_letter_counts)
    return sum(each["waiting"] for each in topics)


LIVE: dict[str, LivePart] = {"dead_letters": live_dead_letters}

SCHEMAS: dict[str, Schema] = {
    "DeadLetter": object_of(
        {
            "topic": string("The dead-letter topic."),
            "partition": integer(),
            "offset": integer(),
            "timestamp": nullable(string(format="date-time")),
            "key": ANYTHING,
            "key_encoding": nullable(string()),
            "value": ANYTHING,
            "encoding": nullable(string()),
            "headers": array({"type": "object"}, "The headers of the original record."),
            "size": integer(),
            "reason": nullable(string("Why it became a dead letter.")),
            "error": nullable(string()),
            "source": nullable(object_of({"topic": string(), "partition": integer(), "offset": integer()})),
            "owner": nullable(string("The query or group that gave it up.")),
            "redrive_progress": {"type": "boolean", "description": "Whether it was redriven."},
        }
    ),
    "Letters": object_of(
        {
            "letters": array(
                ref("DeadLetter"), "Newest first; a page may have fewer although older ones remain."
            ),
            "next": nullable(string("Pass this as `cursor` for older ones; null if there are none.")),
            "topics": array(
                object_of(
                    {
                        "topic": string(),
                        "offsets": integer("Offsets in the topic, including transaction markers."),
                        "letters": integer(),
                        "waiting": integer("Not redriven yet."),
                        "exact": {
                            "type": "boolean",
                            "description": "False while counting: the numbers are upper bounds.",
                        },
                    }
                )
            ),
        }
    ),
    "Redrive": {
        "type": "object",
        "description": "All that wait in `topic`, at most `most`; or the `letters` at these positions.",
        "properties": {
            "topic": string("A dead-letter topic."),
            "most": nullable(integer(minimum=1)),
            "letters": array(
                object_of({"topic": string(), "partition": integer(minimum=0), "offset": integer(minimum=0)}),
                maxItems=_MOST_DEAD_LETTERS,
            ),
        },
        "additionalProperties": False,
    },
    "Redriven": object_of(
        {
            "sent": integer(),
            "skipped": integer(
                "Dead letters that stay: unknown source, or truncated with the original gone."
            ),
            "to": mapping(integer(), "Number of records by topic."),
        }
    ),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1/dead-letters",
        role=Role.READER,
        tag="dead letters",
        summary="Records that could not be read or delivered, newest first, with the reason",
        handler=get_dead_letters,
        parameters=(
            Parameter(name="topic", help="Only from this dead-letter topic."),
            Parameter(name="reason", help="Only reasons and errors that contain this text."),
            Parameter(name="source", help="Only those from this source topic."),
            Parameter(
                name="limit", help="How many; 100 by default.", kind="integer", minimum=1, maximum=10_000
            ),
            Parameter(name="cursor", help="The `next` from the previous page."),
        ),
        answers={200: RouteResponse("Dead letters.", "Letters")},
    ),
    Route(
        method="POST",
        path="/v1/dead-letters/redrive",
        role=Role.WRITER,
        tag="dead letters",
        summary="Send dead letters back to where they came from, each once",
        handler=post_redrive,
        body=RouteBody("Redrive"),
        answers={
            200: RouteResponse("What was redriven.", "Redriven"),
            404: RouteResponse("There is no such topic."),
        },
    ),
)
