"""Dead letters over HTTP: seen with their reasons, and sent again."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Producer
from starlette.responses import Response

from headrace.client import Connection, consumer, producer
from headrace.client.dead_letters import Letter, is_dead_letter_topic
from headrace.client.redrive import Redrive, dead_letter_topics, redriven
from headrace.console.asking import log_of
from headrace.console.letters import Keep, format_cursor, letter_to_json, newest_letters, parse_cursor
from headrace.console.parameters import Parameter
from headrace.console.problems import ProblemError
from headrace.console.routing import Answer, Body, Call, LivePart, Route, json_response
from headrace.console.schemas import (
    ANYTHING,
    Schema,
    array,
    integer,
    mapping,
    nullable,
    object_of,
    ref,
    string,
)
from headrace.console.security import Role
from headrace.console.surroundings import Surroundings

__all__ = ["LIVE", "ROUTES", "SCHEMAS"]

_MOST_LETTERS = 1_000
_DEFAULT_LIMIT = 100


async def list_letters(call: Call) -> Response:
    return json_response(await call.here.workers.run(_listed, call))


def _listed(call: Call) -> dict[str, Any]:
    log, wanted = log_of(call.here), call["topic"]
    topics = dead_letter_topics(log)
    names = [each["topic"] for each in topics if wanted in (None, each["topic"])]
    if wanted is not None and not names:
        raise ProblemError(404, f"there is no dead-letter topic {wanted[:100]!r}")
    sent = {name: redriven(log, name) for name in names}
    before = None if call["cursor"] is None else parse_cursor(call["cursor"])
    limit = min(call["limit"] or _DEFAULT_LIMIT, call.here.settings.max_rows)
    with call.here.fetcher() as fetcher:
        page = newest_letters(fetcher, names, before, limit, _keeping(call["reason"], call["source"]))
    return {
        "letters": [letter_to_json(topic, each, said, sent[topic]) for topic, each, said in page.letters],
        "next": format_cursor(page.before),
        "topics": topics,
    }


def _keeping(reason: str | None, source: str | None) -> Keep:
    wanted = None if reason is None else reason.casefold()

    def keep(letter: Letter) -> bool:
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


async def redrive(call: Call) -> Response:
    """All that wait in a topic, or letters by their places; each once, in transactions."""
    body = call.json_object()
    work = _chosen(body) if "letters" in body else {_topic(body): None}
    most = _most(body)
    call.notes["letters"] = {
        topic: None if only is None else sum(map(len, only.values())) for topic, only in work.items()
    }
    return json_response(await call.here.workers.run(_redriven, call.here, work, most))


def _redriven(
    here: Surroundings, work: Mapping[str, dict[int, set[int]] | None], most: int | None
) -> dict[str, Any]:
    log, sent, skipped, targets = log_of(here), 0, 0, dict[str, int]()
    for topic, only in work.items():
        again = Redrive(log, topic, topic, _Clients(here.connection), most=most, of_streams=True, only=only)
        again.run()
        sent, skipped = sent + again.sent, skipped + again.skipped
        for name, count in again.targets.items():
            targets[name] = targets.get(name, 0) + count
    return {"sent": sent, "skipped": skipped, "to": targets}


def _topic(body: Mapping[str, Any]) -> str:
    topic = body.get("topic")
    if not isinstance(topic, str) or not is_dead_letter_topic(topic):
        raise ProblemError(
            400, "topic must name a dead-letter topic, such as shop.dead; or give letters", kind="bad-body"
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
    if not isinstance(letters, list) or not 0 < len(letters) <= _MOST_LETTERS:
        raise ProblemError(400, f"letters must be a list of 1 to {_MOST_LETTERS:,} places", kind="bad-body")
    found: dict[str, dict[int, set[int]]] = {}
    for each in letters:
        place = each if isinstance(each, dict) else {}
        partition, offset = place.get("partition"), place.get("offset")
        if type(partition) is not int or type(offset) is not int or min(partition, offset) < 0:
            raise ProblemError(400, "a letter is given by topic, partition and offset", kind="bad-body")
        found.setdefault(_topic(place), {}).setdefault(partition, set()).add(offset)
    return dict(found)


async def live_letters(here: Surroundings) -> Any:
    topics = await here.workers.run(lambda: dead_letter_topics(log_of(here)))
    return {"waiting": sum(each["waiting"] for each in topics)}


LIVE: dict[str, LivePart] = {"dead_letters": live_letters}

SCHEMAS: dict[str, Schema] = {
    "Letter": object_of(
        {
            "topic": string("The dead-letter topic."),
            "partition": integer(),
            "offset": integer(),
            "timestamp": nullable(string(format="date-time")),
            "key": ANYTHING,
            "key_encoding": nullable(string()),
            "value": ANYTHING,
            "encoding": nullable(string()),
            "headers": array({"type": "object"}, "Those the record had before."),
            "size": integer(),
            "reason": nullable(string("Why it is dead.")),
            "error": nullable(string()),
            "source": nullable(object_of({"topic": string(), "partition": integer(), "offset": integer()})),
            "owner": nullable(string("The query or the group that gave it up.")),
            "redriven": {"type": "boolean", "description": "Whether it was sent again."},
        }
    ),
    "Letters": object_of(
        {
            "letters": array(ref("Letter"), "Newest first; a page may be short while older ones remain."),
            "next": nullable(string("Give it as cursor for older ones; null when there are none.")),
            "topics": array(
                object_of(
                    {"topic": string(), "offsets": integer(), "waiting": integer("Not sent again yet.")}
                )
            ),
        }
    ),
    "Redrive": {
        "type": "object",
        "description": "All that wait in `topic`, at most `most`; or the `letters` of these places.",
        "properties": {
            "topic": string("A dead-letter topic."),
            "most": nullable(integer(minimum=1)),
            "letters": array(
                object_of({"topic": string(), "partition": integer(minimum=0), "offset": integer(minimum=0)}),
                maxItems=_MOST_LETTERS,
            ),
        },
        "additionalProperties": False,
    },
    "Redriven": object_of(
        {
            "sent": integer(),
            "skipped": integer("Letters that do not say where they came from, and stay."),
            "to": mapping(integer(), "How many to which topic."),
        }
    ),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1/dead-letters",
        role=Role.READER,
        tag="asides",
        summary="Records that could not be read or delivered, newest first, with the reason",
        handler=list_letters,
        parameters=(
            Parameter(name="topic", help="Only of this dead-letter topic."),
            Parameter(name="reason", help="Only reasons and errors that hold this text."),
            Parameter(name="source", help="Only those that came from this topic."),
            Parameter(name="limit", help="How many; 100 without.", kind="integer", minimum=1, maximum=10_000),
            Parameter(name="cursor", help="The `next` of the page before."),
        ),
        answers={200: Answer("Letters.", "Letters")},
    ),
    Route(
        method="POST",
        path="/v1/dead-letters/redrive",
        role=Role.WRITER,
        tag="asides",
        summary="Send dead letters back to where they came from, each once",
        handler=redrive,
        body=Body("Redrive"),
        answers={200: Answer("What was sent.", "Redriven"), 404: Answer("There is no such topic.")},
    ),
)
