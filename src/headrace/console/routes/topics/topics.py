"""Topics over HTTP: listed, described, made, altered, deleted."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from headrace.client.topics import add_partitions, alter_configs, create_topic, delete_topic
from headrace.console.api import (
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
from headrace.console.ask.topics import described_topic, listed_topics, topic_ends
from headrace.console.context import ConsoleContext
from headrace.console.problems import ProblemError
from headrace.console.routes.topics.topic_names import TOPIC, TOPIC_NAME, refuse_internal
from headrace.console.security import Role

__all__ = ["LIVE", "ROUTES", "SCHEMAS"]

_DEFAULT_LIMIT = 100
_MOST_PARTITIONS = 1_000


async def get_topics(call: Call) -> Response:
    limit = min(call["limit"] or _DEFAULT_LIMIT, call.context.settings.max_rows)

    def page() -> dict[str, Any]:
        with call.context.clients.fetcher() as fetcher:
            return listed_topics(
                call.context.clients.log(),
                call.context.connection,
                fetcher,
                call.context.record_counts,
                search=call["search"],
                internal=call["internal"],
                after=call["after"] or "",
                limit=limit,
            )

    return json_response(await call.context.workers.run(page))


async def get_topic(call: Call) -> Response:
    return json_response(await call.context.workers.run(_described, call.context, call["topic"]))


def _described(context: ConsoleContext, topic: str) -> dict[str, Any]:
    with context.clients.fetcher() as fetcher:
        log = context.clients.log()
        return described_topic(log, context.connection, fetcher, context.record_counts, topic)


async def post_topic(call: Call) -> Response:
    body = call.json_object()
    name, partitions = _name(body), _partitions(body)
    configs = {key: value for key, value in _config(body).items() if value is not None}
    _only(body, ("name", "partitions", "config"))
    refuse_internal(name)
    call.notes.update(topic=name, partitions=partitions, config=configs)

    def make() -> dict[str, Any]:
        log = call.context.clients.log()
        create_topic(log, name, partitions=partitions, configs=configs)
        return _described(call.context, name)

    return json_response(await call.context.workers.run(make), 201)


async def patch_topic(call: Call) -> Response:
    """Sets what has a value, puts back to its default what is null, and adds partitions."""
    body, topic = call.json_object(), call["topic"]
    config, partitions = _config(body), _partitions(body)
    _only(body, ("partitions", "config"))
    if not config and partitions is None:
        raise ProblemError(400, "nothing to change", "pass config or partitions", kind="bad-body")
    refuse_internal(topic)
    call.notes.update(partitions=partitions, config=config)
    wanted = {name: value for name, value in config.items() if value is not None}

    def alter() -> dict[str, Any]:
        log = call.context.clients.log()
        log.topic(topic)
        if config:
            alter_configs(log, topic, wanted, config.keys() - wanted.keys())
        if partitions is not None:
            add_partitions(log, topic, partitions)
        return _described(call.context, topic)

    return json_response(await call.context.workers.run(alter))


async def delete_topic_handler(call: Call) -> Response:
    topic = call["topic"]
    if call["confirm"] != topic:
        raise ProblemError(
            400,
            f"deleting {topic} deletes all its records, and must be confirmed",
            f"pass confirm={topic}",
            kind="not-confirmed",
        )
    refuse_internal(topic)

    def remove() -> dict[str, Any]:
        log = call.context.clients.log()
        log.topic(topic)
        delete_topic(log, topic)
        return {"name": topic, "deleted": True}

    return json_response(await call.context.workers.run(remove))


# --- bodies --------------------------------------------------------------------------------------


def _only(body: Mapping[str, Any], names: Sequence[str]) -> None:
    if unknown := sorted(body.keys() - set(names)):
        raise ProblemError(
            400, f"unknown field {unknown[0][:100]!r}; the fields are {', '.join(names)}", kind="bad-body"
        )


def _name(body: Mapping[str, Any]) -> str:
    name = body.get("name")
    if not isinstance(name, str) or not TOPIC_NAME.fullmatch(name):
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
            raise ProblemError(400, "config has an invalid name or value", kind="bad-body")
        config[name] = text
    return config


async def live_topics(context: ConsoleContext) -> Any:
    """The end of every topic: what a page needs to see what comes in."""
    return await context.workers.run(topic_ends, context.clients.log())


LIVE: dict[str, LivePart] = {"topics": live_topics}

_CONFIG = mapping(nullable(string()), "Kafka's names, such as retention.ms; null resets one to its default.")

SCHEMAS: dict[str, Schema] = {
    "TopicSummary": object_of(
        {
            "name": string(),
            "partitions": integer(),
            "records": integer("Number of committed records; an upper bound unless exact."),
            "exact": {
                "type": "boolean",
                "description": "Whether all records were counted; large topics are not.",
            },
            "bytes": nullable(integer("Size on disk; null if no broker reports it.")),
            "internal": {"type": "boolean"},
            "storage": string("disk, or memory, which is lost when the broker stops."),
            "cleanup_policy": nullable(string()),
        }
    ),
    "Topics": object_of(
        {
            "topics": array(ref("TopicSummary")),
            "total": integer("Number of matching topics on all pages."),
            "next": nullable(string("Pass this as `after` for the next page; null on the last.")),
        }
    ),
    "TopicPartition": object_of(
        {
            "partition": integer(),
            "start": integer("The first offset that is still kept."),
            "end": integer("The offset that the next record will get."),
            "records": integer(),
            "exact": {"type": "boolean"},
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
            "exact": {"type": "boolean"},
            "bytes": nullable(integer()),
            "storage": string(),
            "cleanup_policy": nullable(string()),
            "config": mapping(nullable(string()), "All configurations, including defaults."),
            "config_overrides": array(string(), "The names of those set for this topic."),
        }
    ),
    "NewTopic": object_of(
        {
            "name": string("Letters, digits, '.', '_' and '-'.", minLength=1, maxLength=249),
            "partitions": nullable(
                integer("Number of partitions. Default: the broker's.", minimum=1, maximum=_MOST_PARTITIONS)
            ),
            "config": _CONFIG,
        },
        optional=("partitions", "config"),
    ),
    "TopicChange": object_of(
        {
            "partitions": integer(
                "The new total number, which can only grow.", minimum=1, maximum=_MOST_PARTITIONS
            ),
            "config": _CONFIG,
        },
        optional=("partitions", "config"),
    ),
    "TopicDeleted": object_of({"name": string(), "deleted": {"type": "boolean"}}),
}

LIMIT = Parameter(name="limit", help="How many; 100 by default.", kind="integer", minimum=1, maximum=10_000)

ROUTES = (
    Route(
        method="GET",
        path="/v1/topics",
        role=Role.READER,
        tag="topics",
        summary="Topics by name, with their sizes",
        handler=get_topics,
        parameters=(
            Parameter(name="search", help="Only names that contain this text."),
            Parameter(name="after", help="Only names after this one: the `next` from the previous page."),
            Parameter(
                name="limit",
                help="Topics per page; 100 by default.",
                kind="integer",
                minimum=1,
                maximum=10_000,
            ),
            Parameter(name="internal", help="Include internal topics.", kind="boolean", default=True),
        ),
        answers={200: RouteResponse("A page of topics.", "Topics")},
    ),
    Route(
        method="POST",
        path="/v1/topics",
        role=Role.ADMIN,
        tag="topics",
        summary="Create a topic",
        handler=post_topic,
        body=RouteBody("NewTopic"),
        answers={
            201: RouteResponse("Created.", "Topic"),
            409: RouteResponse("A topic with this name exists."),
        },
    ),
    Route(
        method="GET",
        path="/v1/topics/{topic}",
        role=Role.READER,
        tag="topics",
        summary="A topic's partitions and configuration",
        handler=get_topic,
        parameters=(TOPIC,),
        answers={
            200: RouteResponse("The topic.", "Topic"),
            404: RouteResponse("Not found."),
        },
    ),
    Route(
        method="PATCH",
        path="/v1/topics/{topic}",
        role=Role.ADMIN,
        tag="topics",
        summary="Change a topic's configuration, or add partitions",
        handler=patch_topic,
        parameters=(TOPIC,),
        body=RouteBody("TopicChange"),
        answers={
            200: RouteResponse("The topic after the change.", "Topic"),
            404: RouteResponse("Not found."),
        },
    ),
    Route(
        method="DELETE",
        path="/v1/topics/{topic}",
        role=Role.ADMIN,
        tag="topics",
        summary="Delete a topic with all its records",
        handler=delete_topic_handler,
        parameters=(
            TOPIC,
            Parameter(name="confirm", help="The name of the topic again.", required=True, example="orders"),
        ),
        answers={
            200: RouteResponse("Deleted.", "TopicDeleted"),
            404: RouteResponse("Not found."),
        },
    ),
)
