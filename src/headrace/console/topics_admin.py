"""Topics over HTTP: listed, described, made, altered, deleted."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from headrace.client.topic_changes import add_partitions, alter_configs, create_topic, delete_topic
from headrace.console.asking import log_of, refuse_internal
from headrace.console.ingest import TOPIC
from headrace.console.parameters import Parameter
from headrace.console.problems import ProblemError
from headrace.console.routing import Answer, Body, Call, LivePart, Route, json_response
from headrace.console.schemas import Schema, array, integer, mapping, nullable, object_of, ref, string
from headrace.console.security import Role
from headrace.console.surroundings import Surroundings
from headrace.console.topic_questions import described_topic, listed_topics, topic_ends

__all__ = ["LIVE", "ROUTES", "SCHEMAS"]

_DEFAULT_LIMIT = 100
_MOST_PARTITIONS = 1_000
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


async def list_topics(call: Call) -> Response:
    limit = min(call["limit"] or _DEFAULT_LIMIT, call.here.settings.max_rows)

    def page() -> dict[str, Any]:
        return listed_topics(
            log_of(call.here),
            call.here.connection,
            search=call["search"],
            internal=call["internal"],
            after=call["after"] or "",
            limit=limit,
        )

    return json_response(await call.here.workers.run(page))


async def describe_topic(call: Call) -> Response:
    here = call.here
    return json_response(
        await here.workers.run(described_topic, log_of(here), here.connection, call["topic"])
    )


async def make_topic(call: Call) -> Response:
    body = call.json_object()
    name, partitions = _name(body), _partitions(body)
    configs = {key: value for key, value in _config(body).items() if value is not None}
    _only(body, ("name", "partitions", "config"))
    refuse_internal(name)
    call.notes.update(topic=name, partitions=partitions, config=configs)

    def make() -> dict[str, Any]:
        log = log_of(call.here)
        create_topic(log, name, partitions=partitions, configs=configs)
        return described_topic(log, call.here.connection, name)

    return json_response(await call.here.workers.run(make), 201)


async def alter_topic(call: Call) -> Response:
    """Sets what has a value, puts back to its default what is null, and adds partitions."""
    body, topic = call.json_object(), call["topic"]
    config, partitions = _config(body), _partitions(body)
    _only(body, ("partitions", "config"))
    if not config and partitions is None:
        raise ProblemError(400, "nothing to change", "give config, or partitions", kind="bad-body")
    refuse_internal(topic)
    call.notes.update(partitions=partitions, config=config)
    wanted = {name: value for name, value in config.items() if value is not None}

    def alter() -> dict[str, Any]:
        log = log_of(call.here)
        log.topic(topic)
        if config:
            alter_configs(log, topic, wanted, config.keys() - wanted.keys())
        if partitions is not None:
            add_partitions(log, topic, partitions)
        return described_topic(log, call.here.connection, topic)

    return json_response(await call.here.workers.run(alter))


async def remove_topic(call: Call) -> Response:
    topic = call["topic"]
    if call["confirm"] != topic:
        raise ProblemError(
            400,
            f"deleting {topic} takes all its records, and was not confirmed",
            f"say so with confirm={topic}",
            kind="not-confirmed",
        )
    refuse_internal(topic)

    def remove() -> dict[str, Any]:
        log = log_of(call.here)
        log.topic(topic)
        delete_topic(log, topic)
        return {"name": topic, "deleted": True}

    return json_response(await call.here.workers.run(remove))


# --- bodies --------------------------------------------------------------------------------------


def _only(body: Mapping[str, Any], names: Sequence[str]) -> None:
    if unknown := sorted(body.keys() - set(names)):
        raise ProblemError(
            400, f"unknown field {unknown[0][:100]!r}; there is {', '.join(names)}", kind="bad-body"
        )


def _name(body: Mapping[str, Any]) -> str:
    name = body.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ProblemError(400, "name must be 1 to 249 letters, digits, '.', '_' and '-'", kind="bad-body")
    return name


def _partitions(body: Mapping[str, Any]) -> int | None:
    count = body.get("partitions")
    if count is None:
        return None
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= _MOST_PARTITIONS:
        raise ProblemError(
            400, f"partitions must be a whole number from 1 to {_MOST_PARTITIONS:,}", kind="bad-body"
        )
    return count


def _config(body: Mapping[str, Any]) -> dict[str, str | None]:
    """Values as text, which is what Kafka keeps; null for a default."""
    given = body.get("config")
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ProblemError(400, "config must be an object of names and values", kind="bad-body")
    config: dict[str, str | None] = {}
    for name, value in given.items():
        if not isinstance(value, str | int | float | bool | None):
            raise ProblemError(400, f"config {name[:100]!r} must be text, a number or null", kind="bad-body")
        text = None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        if not name or "\0" in name + (text or ""):
            raise ProblemError(400, "config has a name or a value that cannot be one", kind="bad-body")
        config[name] = text
    return config


async def live_topics(here: Surroundings) -> Any:
    """The end of every topic: what a page needs to see what comes in."""
    return await here.workers.run(topic_ends, log_of(here))


LIVE: dict[str, LivePart] = {"topics": live_topics}

_CONFIG = mapping(
    nullable(string()), "Names of Kafka's, such as retention.ms; null puts one back to its default."
)

SCHEMAS: dict[str, Schema] = {
    "TopicSummary": object_of(
        {
            "name": string(),
            "partitions": integer(),
            "records": integer("Offsets from start to end: markers and compacted gaps count too."),
            "bytes": nullable(integer("On disk; null where no broker tells it.")),
            "internal": {"type": "boolean"},
            "storage": string("disk, or memory: gone when the broker stops."),
            "cleanup_policy": nullable(string()),
        }
    ),
    "Topics": object_of(
        {
            "topics": array(ref("TopicSummary")),
            "total": integer("Topics that match, on this and the other pages."),
            "next": nullable(string("Give it as `after` for the next page; null on the last.")),
        }
    ),
    "TopicPartition": object_of(
        {
            "partition": integer(),
            "start": integer("The first offset that is kept."),
            "end": integer("The offset that the next record will get."),
            "bytes": nullable(integer()),
            "leader": integer(),
        }
    ),
    "Topic": object_of(
        {
            "name": string(),
            "internal": {"type": "boolean"},
            "partitions": array(ref("TopicPartition")),
            "records": integer(),
            "bytes": nullable(integer()),
            "storage": string(),
            "cleanup_policy": nullable(string()),
            "config": mapping(nullable(string()), "Every configuration, set or inherited."),
            "config_overrides": array(string(), "Those that are set for this topic."),
        }
    ),
    "NewTopic": object_of(
        {
            "name": string("Letters, digits, '.', '_' and '-'.", minLength=1, maxLength=249),
            "partitions": nullable(
                integer("How many; the broker's default without.", minimum=1, maximum=_MOST_PARTITIONS)
            ),
            "config": _CONFIG,
        },
        optional=("partitions", "config"),
    ),
    "TopicChange": object_of(
        {
            "partitions": integer("The new total, which can only grow.", minimum=1, maximum=_MOST_PARTITIONS),
            "config": _CONFIG,
        },
        optional=("partitions", "config"),
    ),
    "TopicDeleted": object_of({"name": string(), "deleted": {"type": "boolean"}}),
}

LIMIT = Parameter(name="limit", help="How many; 100 without.", kind="integer", minimum=1, maximum=10_000)

ROUTES = (
    Route(
        method="GET",
        path="/v1/topics",
        role=Role.READER,
        tag="topics",
        summary="Topics by name, with their sizes",
        handler=list_topics,
        parameters=(
            Parameter(name="search", help="Only names that hold this text."),
            Parameter(name="after", help="Only names after this one: the `next` of the page before."),
            Parameter(
                name="limit", help="Topics in a page; 100 without.", kind="integer", minimum=1, maximum=10_000
            ),
            Parameter(name="internal", help="Also the log's own topics.", kind="boolean", default=True),
        ),
        answers={200: Answer("A page of topics.", "Topics")},
    ),
    Route(
        method="POST",
        path="/v1/topics",
        role=Role.ADMIN,
        tag="topics",
        summary="Make a topic",
        handler=make_topic,
        body=Body("NewTopic"),
        answers={201: Answer("Made.", "Topic"), 409: Answer("There is one of that name.")},
    ),
    Route(
        method="GET",
        path="/v1/topics/{topic}",
        role=Role.READER,
        tag="topics",
        summary="A topic's partitions and configuration",
        handler=describe_topic,
        parameters=(TOPIC,),
        answers={200: Answer("The topic.", "Topic"), 404: Answer("There is none of that name.")},
    ),
    Route(
        method="PATCH",
        path="/v1/topics/{topic}",
        role=Role.ADMIN,
        tag="topics",
        summary="Change a topic's configuration, or add partitions",
        handler=alter_topic,
        parameters=(TOPIC,),
        body=Body("TopicChange"),
        answers={200: Answer("The topic as it is now.", "Topic"), 404: Answer("There is none of that name.")},
    ),
    Route(
        method="DELETE",
        path="/v1/topics/{topic}",
        role=Role.ADMIN,
        tag="topics",
        summary="Delete a topic with all its records",
        handler=remove_topic,
        parameters=(
            TOPIC,
            Parameter(name="confirm", help="The topic's name once more.", required=True, example="orders"),
        ),
        answers={200: Answer("Deleted.", "TopicDeleted"), 404: Answer("There is none of that name.")},
    ),
)
