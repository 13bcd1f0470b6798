"""Groups over HTTP: who reads, how far behind in records and in seconds, and where that is going."""

from dataclasses import asdict
from typing import Any

from starlette.responses import Response

from headrace.console.api import (
    Call,
    LivePart,
    Parameter,
    Route,
    RouteResponse,
    Schema,
    array,
    integer,
    json_response,
    nullable,
    object_of,
    ref,
    string,
)
from headrace.console.ask.groups import described_group, group_lags, lag_watch
from headrace.console.ask.lag_history import KEPT_S, SAMPLE_S
from headrace.console.context import ConsoleContext
from headrace.console.problems import ProblemError
from headrace.console.security import Role

__all__ = ["LIVE", "ROUTES", "SCHEMAS"]


async def get_groups(call: Call) -> Response:
    watch = lag_watch(call.context)
    lags = await watch.newest()
    rows = [{**asdict(lag), "trend": watch.history.of(group)} for group, lag in sorted(lags.items())]
    return json_response({"groups": rows, "trend": _TREND})


async def get_group(call: Call) -> Response:
    watch, group = lag_watch(call.context), call["group"]
    if not group or "\0" in group:
        raise ProblemError(404, "no group can have this name")
    await watch.newest()
    found = await call.context.workers.run(described_group, call.context, group)
    del found["events"]
    return json_response({**found, "trend": watch.history.of(group)})


async def live_groups(context: ConsoleContext) -> Any:
    lags = await group_lags(context)
    return [asdict(lag) for _, lag in sorted(lags.items())]


LIVE: dict[str, LivePart] = {"groups": live_groups}

_TREND = {"sampled_every_s": SAMPLE_S, "kept_s": KEPT_S}
_SECONDS: Schema = nullable(
    {"type": "number", "description": "How long the oldest unread record has waited; null if unknown."}
)
_BEHIND = nullable(integer("Offsets between the committed offset and the end."))
_POINTS = array(array(integer()), "Pairs of milliseconds since the epoch and lag, oldest first.")

SCHEMAS: dict[str, Schema] = {
    "GroupSummary": object_of(
        {
            "group": string(),
            "state": string("Kafka's name of the state: Stable, Empty, PreparingRebalancing, …"),
            "type": string(),
            "members": integer(),
            "lag_records": _BEHIND,
            "lag_seconds": _SECONDS,
            "trend": _POINTS,
        }
    ),
    "Groups": object_of(
        {
            "groups": array(ref("GroupSummary")),
            "trend": object_of(
                {"sampled_every_s": {"type": "number"}, "kept_s": {"type": "number"}},
                description="How the trends, which are kept in memory, are sampled.",
            ),
        }
    ),
    "GroupMember": object_of(
        {
            "member_id": string(),
            "instance_id": nullable(string()),
            "client_id": string(),
            "host": string(),
            "partitions": array(object_of({"topic": string(), "partition": integer()})),
        }
    ),
    "GroupPartition": object_of(
        {
            "topic": string(),
            "partition": integer(),
            "committed": nullable(integer()),
            "log_start": nullable(integer()),
            "log_end": nullable(integer()),
            "lag_records": _BEHIND,
            "lag_seconds": _SECONDS,
            "lost_records": nullable(integer("Offsets deleted before the group had read them.")),
            "member_id": nullable(string()),
        }
    ),
    "Group": object_of(
        {
            "group": string(),
            "state": string(),
            "type": string(),
            "assignor": nullable(string()),
            "coordinator": nullable(string()),
            "lag_records": integer(),
            "lag_seconds": _SECONDS,
            "members": array(ref("GroupMember")),
            "partitions": array(ref("GroupPartition")),
            "trend": _POINTS,
        }
    ),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1/groups",
        role=Role.READER,
        tag="groups",
        summary="Groups with their lag, and its trend",
        handler=get_groups,
        answers={200: RouteResponse("The groups.", "Groups")},
    ),
    Route(
        method="GET",
        path="/v1/groups/{group:path}",  # a group may be called anything, slashes included
        role=Role.READER,
        tag="groups",
        summary="One group: its members, and its lag in every partition",
        handler=get_group,
        parameters=(Parameter(name="group", place="path", help="Name of the group.", example="billing"),),
        answers={
            200: RouteResponse("The group.", "Group"),
            404: RouteResponse("Not found."),
        },
    ),
)
