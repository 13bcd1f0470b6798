"""Groups over HTTP: who reads, how far behind in records and in seconds, and where that is going.

The trend is kept in this process's memory: sampled every two seconds from the first
question on, for ten minutes, and gone with the process.
"""

import asyncio
from dataclasses import asdict
from typing import Any

from starlette.responses import Response

from headrace.console.group_questions import GroupLags, described_group
from headrace.console.lag_history import KEPT_S, SAMPLE_S, GroupLag, LagHistory
from headrace.console.parameters import Parameter
from headrace.console.problems import ProblemError
from headrace.console.routing import Answer, Call, LivePart, Route, json_response
from headrace.console.schemas import Schema, array, integer, nullable, object_of, ref, string
from headrace.console.security import Role
from headrace.console.surroundings import Surroundings
from headrace.console.watching import Watch

__all__ = ["LIVE", "ROUTES", "SCHEMAS", "group_lags"]

Lags = dict[str, GroupLag]


class LagWatch(Watch[Lags]):
    """The lag of all groups, sampled for as long as the console runs once somebody asked."""

    def __init__(self, here: Surroundings) -> None:
        self._lags = GroupLags(here)
        self._here = here
        self._sampler: asyncio.Task[None] | None = None
        super().__init__(self._sample, SAMPLE_S)

    @property
    def history(self) -> LagHistory:
        return self._lags.history

    async def newest(self) -> Lags:
        """The last sample, which is two seconds old at most; asks anew where there is none."""
        if self._sampler is None:
            self._sampler = asyncio.create_task(self._keep_sampling())
            self._here.on_close(self._sampler.cancel)
        return self.value if self.value is not None and self.failure is None else await self._sample()

    async def _keep_sampling(self) -> None:
        async with self.following():
            await self._here.stopping.wait()

    async def _sample(self) -> Lags:
        return await self._here.workers.run(self._lags.sample)


def lag_watch(here: Surroundings) -> LagWatch:
    """The one of this console."""
    found = here.watches.of(("groups",), lambda: LagWatch(here))
    assert isinstance(found, LagWatch)
    return found


async def group_lags(here: Surroundings) -> Lags:
    """How far all groups are behind, for other parts of the console."""
    return await lag_watch(here).newest()


async def list_groups(call: Call) -> Response:
    watch = lag_watch(call.here)
    lags = await watch.newest()
    rows = [{**asdict(lag), "trend": watch.history.of(group)} for group, lag in sorted(lags.items())]
    return json_response({"groups": rows, "trend": _TREND})


async def describe_group(call: Call) -> Response:
    watch, group = lag_watch(call.here), call["group"]
    if "\0" in group:
        raise ProblemError(404, "no group has such a name")
    await watch.newest()
    found = await call.here.workers.run(described_group, call.here, group)
    del found["events"]
    return json_response({**found, "trend": watch.history.of(group)})


async def live_groups(here: Surroundings) -> Any:
    lags = await group_lags(here)
    return [asdict(lag) for _, lag in sorted(lags.items())]


LIVE: dict[str, LivePart] = {"groups": live_groups}

_TREND = {"sampled_every_s": SAMPLE_S, "kept_s": KEPT_S}
_SECONDS: Schema = nullable(
    {"type": "number", "description": "How long the oldest unread record has waited; null if not known."}
)
_BEHIND = nullable(integer("Offsets from the committed one to the end."))
_POINTS = array(array(integer()), "Milliseconds since the epoch and records behind, oldest first.")

SCHEMAS: dict[str, Schema] = {
    "GroupSummary": object_of(
        {
            "group": string(),
            "state": string("Kafka's word: Stable, Empty, PreparingRebalancing, …"),
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
                description="Of the trends, which this process keeps in memory.",
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
            "lost_records": nullable(integer("Offsets removed before the group had read them.")),
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
        handler=list_groups,
        answers={200: Answer("The groups.", "Groups")},
    ),
    Route(
        method="GET",
        path="/v1/groups/{group:path}",  # a group may be called anything, slashes included
        role=Role.READER,
        tag="groups",
        summary="One group: its members, and its lag in every partition",
        handler=describe_group,
        parameters=(Parameter(name="group", place="path", help="Name of the group.", example="billing"),),
        answers={200: Answer("The group.", "Group"), 404: Answer("There is none of that name.")},
    ),
)
