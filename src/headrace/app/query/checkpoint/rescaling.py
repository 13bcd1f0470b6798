"""A query goes on with another number of buckets: its state is spread anew, and nothing is read again.

The new state is written beside the old one; the manifest with the new number makes it the one that
counts; then it takes the old one's place. A crash before the manifest leaves the old state, one
behind it is finished by the next start (`settle`).
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.app.plan.dataflow import PlannedGraph
from headrace.app.plan.planner import PlannedStream
from headrace.app.query.checkpoint.manifest import Manifest
from headrace.app.query.checkpoint.spark_checkpoint import is_under_way, last_commit
from headrace.crash_points import reached
from headrace.streams import NO_WATERMARK
from headrace.streams.dataflow import StageOperators
from headrace.streams.engine import BucketFiles, Keys, rescale

if TYPE_CHECKING:
    from headrace.streams.engine import StoredState

__all__ = ["QueryState", "Spread", "rescaled", "settle", "state_of_graph", "state_of_stream", "with_buckets"]

_OLD = "replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageState:
    """What is kept in a folder for each bucket of a stage, and what its keys are."""

    folder: str
    new_states: "Callable[[], Sequence[StoredState]]"
    keys: Sequence[Keys]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryState:
    """All state of a query, in one folder of its checkpoint."""

    folder: str
    stages: Sequence[StageState]
    lowest_us: int


Spread = Callable[[Path, Manifest, QueryState, int], Manifest]
"""Spreads the state of a query over so many buckets; the manifest to go on with."""


def state_of_stream(planned: PlannedStream) -> QueryState:
    """The state of a stream's views."""
    plan = planned.plan(1)
    keys = [[each.keys] for each in plan.stateful.values()]
    stage = StageState(folder="", new_states=plan.new_states, keys=keys)
    return QueryState(folder="buckets", stages=[stage], lowest_us=NO_WATERMARK)


def state_of_graph(planned: PlannedGraph) -> QueryState:
    """The state of a dataflow: in each stage the clock of its sources, and its operators'."""
    graph = planned.graph
    stages = [
        StageState(
            folder=str(number),
            new_states=StageOperators(graph, number).new_states,
            keys=[None, *(graph.nodes[place].operator.inputs for place in places)],
        )
        for number, places in enumerate(graph.stages)
    ]
    return QueryState(folder="stages", stages=stages, lowest_us=0)


def with_buckets(
    folder: Path,
    manifest: Manifest,
    state: QueryState,
    buckets: int | None,
    say: Callable[[str], None],
    spread: Spread | None = None,
) -> Manifest:
    """The manifest to go on with: with so many buckets, or as many as there are.

    Where tasks write what they make (`slots`), a batch that is under way must be divided as before.
    `spread` is for state that is kept elsewhere than in the folder.
    """
    settle(folder, manifest, state)
    if buckets is None or buckets == manifest.buckets:
        return manifest
    if manifest.slots and is_under_way(folder):
        say(f"{folder.name}: a batch is under way; start once more to spread state over {buckets} buckets")
        return manifest
    changed = (spread or rescaled)(folder, manifest, state, buckets)
    if changed.buckets != manifest.buckets:
        say(f"{folder.name}: state is spread over {buckets} buckets instead of {manifest.buckets}")
    return changed


def rescaled(folder: Path, manifest: Manifest, state: QueryState, buckets: int) -> Manifest:
    """Spreads the state of a query that has stopped over so many buckets; the manifest to go on with."""
    checkpoint, last = folder / "checkpoint", last_commit(folder)
    new = checkpoint / _new_state(buckets)
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for stage in state.stages if last >= 0 else ():
        before = [
            BucketFiles(checkpoint / state.folder / stage.folder, each, manifest.query_id)
            for each in range(manifest.buckets)
        ]
        after = [BucketFiles(new / stage.folder, each, manifest.query_id) for each in range(buckets)]
        for _ in rescale(before, after, last, stage.new_states, stage.keys, state.lowest_us):
            reached("bucket rescaled")
    manifest = replace(manifest, buckets=buckets)
    manifest.write(folder)
    reached("rescaled")
    settle(folder, manifest, state)
    return manifest


def settle(folder: Path, manifest: Manifest, state: QueryState) -> None:
    """Puts state that was spread anew in its place, and removes what was not finished."""
    checkpoint = folder / "checkpoint"
    new, old = checkpoint / _new_state(manifest.buckets), checkpoint / _OLD
    place = checkpoint / state.folder
    if new.exists():
        if place.exists():
            shutil.rmtree(old, ignore_errors=True)
            place.rename(old)
            reached("old state aside")
        new.rename(place)
    for left in [*checkpoint.glob(_new_state("*")), old]:
        shutil.rmtree(left, ignore_errors=True)


def _new_state(buckets: object) -> str:
    """The folder of state that is not in its place yet: it counts if the manifest has its number."""
    return f"rescaled-{buckets}"
