"""A read waits until the view reflects what its token tells of, through every stage between the two."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from headrace.app.status import ViewDescription
from headrace.console.api import Call
from headrace.console.ask.pipeline import (
    Derivations,
    Maker,
    Stage,
    builds_on_the_way,
    ends_behind,
    watch_progress,
)
from headrace.console.ask.view_state import watch_view
from headrace.console.problems import ProblemError
from headrace.console.push import Watch
from headrace.console.write.tokens import WrittenOffsets, merge_positions, missing_positions
from headrace.views import Reflected

__all__ = ["TokenWait"]

T = TypeVar("T")

_BEGINNING: WrittenOffsets = {}


@dataclass(frozen=True, slots=True)
class WantedRows:
    """What a view must reflect, as rows of which query; None where any will do."""

    positions: WrittenOffsets
    query_id: str | None = None

    def missing(self, reflected: Reflected) -> WrittenOffsets:
        """What is still to come."""
        is_other = self.query_id is not None and reflected.query_id != self.query_id
        return missing_positions(self.positions, _BEGINNING if is_other else reflected.offsets)


class TokenWait:
    """The wait of one read for its tokens, until the deadline; then it raises ProblemError "not yet"."""

    def __init__(self, call: Call, view: ViewDescription, wanted: WrittenOffsets, wait_s: float) -> None:
        self._call = call
        self._workers = call.context.workers
        self._view = view
        self._wanted = wanted
        self._deadline = asyncio.get_running_loop().time() + wait_s
        self._asked: WantedRows | None = None

    async def is_over(self, reflected: Reflected) -> bool:
        """Whether rows that reflect this show every write; if not, waits until it is worth reading again."""
        if not self._wanted:
            return True
        if self._asked is None:
            self._asked = await self._ask(reflected)
        if not self._asked.missing(reflected):
            return True
        await self._wait_reflected(self._asked)
        return False

    async def _ask(self, reflected: Reflected) -> WantedRows:
        """What this view must reflect; raises ProblemError if no write of the token gets to it.

        A token may tell of several topics, for it follows a client through all its writes;
        each view waits for those that it is made from.
        """
        described = await self._workers.run(self._call.context.application.description)
        derivations = Derivations.of(described) if described is not None else Derivations({})
        query = derivations.queries.get(self._view.query)
        reads = {*reflected.offsets, *(each for each in [self._view.stream] if each is not None)}
        reads |= set(query.reads) if query is not None else set()
        if not reads:
            return WantedRows(self._wanted)
        stages = derivations.stages(sorted(reads), self._wanted) if query is not None else []
        if not stages:
            self._require_own(reads)
            return WantedRows({topic: each for topic, each in self._wanted.items() if topic in reads})
        builds = await self._workers.run(
            builds_on_the_way, self._call.context, derivations, self._view.query, stages
        )
        if builds is None:
            raise self._not_yet(self._wanted, "; a query on the way is being rebuilt")
        required = dict(self._wanted)
        for stage in stages:
            required[stage.topic] = await self._behind(stage, required, builds)
        own = {topic: each for topic, each in required.items() if topic in reads}
        return WantedRows(own, builds[self._view.query])

    def _require_own(self, reads: set[str]) -> None:
        if not reads & self._wanted.keys():
            known, given = ", ".join(sorted(reads)), ", ".join(sorted(self._wanted))
            raise ProblemError(
                400,
                f"view {self._view.name!r} reads {known}, but the token is for {given}",
                "omit the token, or use one from a write to a topic that the view is made from",
                kind="foreign-token",
            )

    async def _behind(
        self, stage: Stage, required: WrittenOffsets, builds: Mapping[str, str]
    ) -> Mapping[int, int]:
        """Behind what the makers of a derived topic make of these positions, once all of it is there."""
        for maker in stage.makers:
            asked = {topic: required[topic] for topic in maker.query.reads if topic in required}
            await self._wait_maker(maker, WantedRows(asked, builds[maker.query.name]))
        ends = await self._workers.run(ends_behind, self._call.context, stage.topic)
        merged = merge_positions([{stage.topic: ends}, {stage.topic: required.get(stage.topic, {})}])
        return merged[stage.topic]

    async def _wait_maker(self, maker: Maker, asked: WantedRows) -> None:
        context = self._call.context
        if maker.view is not None:
            view_watch = watch_view(context, maker.view)
            await self._wait(view_watch, lambda state: asked.missing(state.reflected), asked.positions)
        else:
            assert asked.query_id is not None
            watch = watch_progress(context, maker.query, asked.query_id)
            await self._wait(
                watch, lambda offsets: missing_positions(asked.positions, offsets), asked.positions
            )

    async def _wait_reflected(self, asked: WantedRows) -> None:
        watch = watch_view(self._call.context, self._view)
        await self._wait(watch, lambda state: asked.missing(state.reflected), asked.positions)

    async def _wait(
        self, watch: Watch[T], missing: Callable[[T], WrittenOffsets], all_of_it: WrittenOffsets
    ) -> None:
        """Returns once nothing is missing; raises ProblemError "not yet" at the deadline.

        A user who may no longer read waits no longer than a subscriber for a sign of life.
        """
        loop, context = asyncio.get_running_loop(), self._call.context
        async with watch.following():
            while True:
                version = watch.version
                behind = all_of_it if watch.value is None else missing(watch.value)
                if not behind:
                    return
                left = self._deadline - loop.time()
                if left <= 0 or context.stopping.is_set():
                    raise self._not_yet(behind)
                await watch.wait_change(version, min(left, context.settings.heartbeat_ms / 1000))
                self._call.check_still_allowed()

    def _not_yet(self, behind: WrittenOffsets, why: str = "") -> ProblemError:
        offsets = sum(offset for each in behind.values() for offset in each.values())
        return ProblemError(
            409,
            f"view {self._view.name!r} does not reflect this token yet: {offsets} offsets are missing{why}",
            "try again with a longer wait_ms, or check that its application is running",
            kind="not-yet",
            members={"missing": {topic: dict(each) for topic, each in behind.items()}},
            headers={"Retry-After": "1"},
        )
