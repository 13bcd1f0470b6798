"""Queries of dataflows: their manifests, what they are held against, and their progress."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from headrace.app.plan.dataflow import PlannedGraph
from headrace.app.query.checkpoint import (
    BUCKETS,
    FORMAT,
    Manifest,
    SideProgress,
    Spread,
    beginning,
    build_of,
    describe_graph,
    discard,
    graph_reasons,
    last_position,
    rebuild_target,
    state_of_graph,
    with_buckets,
)
from headrace.app.query.places import graph_folder, of_topic, place
from headrace.app.query.sinks import GraphBatch
from headrace.client import Connection
from headrace.errors import ConfigError
from headrace.streams import StreamSpec
from headrace.streams.feed import GroupProgress, JointPosition

__all__ = [
    "GraphProgress",
    "graph_target",
    "positions_of",
    "ready_graphs",
    "specs_of",
]


def ready_graphs(
    planned: tuple[PlannedGraph, ...],
    data: Path,
    connection: Connection,
    *,
    rebuild: Callable[[str], bool],
    makers: Mapping[str, Manifest],
    progress: Mapping[str, SideProgress] | None = None,
    buckets: int | None = None,
    new_buckets: int = BUCKETS,
    say: Callable[[str], None] = lambda _: None,
    spread: Spread | None = None,
) -> dict[str, Manifest]:
    """The manifest of each dataflow, by view; those of views that are gone are removed.

    `rebuild` says which views are rebuilt, and `makers` are the manifests of the queries that make
    topics of rows, by topic. `progress` is what `side_progress` says. State of a view that goes on
    is spread over this number of `buckets`, if there is one; otherwise a new one has `new_buckets`.
    Raises ConfigError if a view changed in a way that its checkpoint cannot follow.
    """
    names = {each.view.name for each in planned}
    folder = data / "dataflows"
    for kept in list(folder.iterdir()) if folder.is_dir() else []:
        if kept.name not in names:
            discard(kept)
    found = {}
    for each in planned:  # all are held against their checkpoints before one is discarded
        folder = graph_folder(data, each.view.name)
        manifest = None if rebuild(each.view.name) else _kept(folder)
        if manifest is not None and (reasons := _reasons(manifest, each)):
            raise ConfigError(
                f"view {each.view.name!r}, or Headrace, changed in ways that its checkpoint cannot follow: "
                f"{reasons[0]}. Run it with --rebuild-view {each.view.name} to build it again from the log "
                "while the other views go on, with --rebuild for all views, or undo the change"
            )
        found[each.view.name] = manifest
    ready = {}
    for each in planned:
        name = each.view.name
        manifest = _ready(
            each,
            found[name],
            data,
            connection,
            makers,
            (progress or {}).get(each.name),
            buckets or new_buckets,
        )
        ready[name] = with_buckets(
            graph_folder(data, name), manifest, state_of_graph(each), buckets, say, spread
        )
    return ready


def _kept(folder: Path) -> Manifest | None:
    """The manifest of a query that has begun."""
    offsets = folder / "checkpoint" / "offsets"
    return Manifest.read(folder) if offsets.is_dir() and any(offsets.iterdir()) else None


def _ready(
    planned: PlannedGraph,
    manifest: Manifest | None,
    data: Path,
    connection: Connection,
    makers: Mapping[str, Manifest],
    progress: SideProgress | None,
    buckets: int,
) -> Manifest:
    folder, described = graph_folder(data, planned.view.name), describe_graph(planned)
    topics = [each.spec.topic for each in planned.graph.sources]
    reads = ",".join(makers[each].query_id for each in topics if each in makers)
    if manifest is None or manifest.reads != reads:  # or a topic that it reads was rebuilt
        discard(folder)
        begins = _begins(planned, connection, makers)
        manifest = Manifest.new(described, buckets, begins=begins, reads=reads, progress=progress)
    manifest = replace(manifest, query=described)
    manifest.write(folder)
    return manifest


def _reasons(manifest: Manifest, planned: PlannedGraph) -> list[str]:
    if manifest.format < FORMAT:
        return [f"its state was kept by an older version (format {manifest.format}, now {FORMAT})"]
    return graph_reasons(manifest.query, planned)


def _begins(planned: PlannedGraph, connection: Connection, makers: Mapping[str, Manifest]) -> dict[str, int]:
    """Where the query begins, by topic and partition; in a topic of rows, where its newest build does."""
    found = {}
    for source in planned.graph.sources:
        topic = source.spec.topic
        build = build_of(topic, makers.get(topic))
        for partition, offset in beginning(source.spec, connection).items():
            found[place(topic, partition)] = max(offset, build.get(str(partition), 0))
    return found


def positions_of(folder: Path, specs: Mapping[str, StreamSpec]) -> dict[str, int]:
    """The next offsets of a dataflow that starts now: behind its checkpoint, or where it began."""
    found = {
        place(topic, partition): offset for topic, spec in specs.items() for partition, offset in spec.begins
    }
    last = last_position(folder)
    if last is not None:
        for each in JointPosition.from_json(last).inputs:
            found |= {place(each.topic, partition): offset for partition, offset in each.next.items()}
    return found


def graph_target(specs: Mapping[str, StreamSpec], connection: Connection) -> dict[str, int]:
    """Where a dataflow that is built anew has caught up, as its positions are named."""
    return {
        place(topic, partition): end
        for topic, spec in specs.items()
        for partition, end in rebuild_target(spec, connection).items()
    }


def specs_of(planned: PlannedGraph, manifest: Manifest) -> dict[str, StreamSpec]:
    """The topics as this query reads them: from where it began."""
    found = {}
    for source in planned.graph.sources:
        begins = tuple(sorted(of_topic(manifest.begins, source.spec.topic).items()))
        queries = (manifest.query_id, *manifest.replaces)
        found[source.spec.topic] = replace(source.spec, begins=begins, letters_of=queries)
    return found


class GraphProgress:
    """Commits how far a dataflow has come, in each topic as the offsets of its group there."""

    def __init__(self, planned: PlannedGraph, query_id: str, connection: Connection) -> None:
        self._specs = {each.spec.topic: each.spec for each in planned.graph.sources}
        self._open: Callable[[str, str], GroupProgress] = lambda topic, run: GroupProgress(
            connection, self._specs[topic].group, topic, run, query_id
        )
        self._groups: dict[tuple[str, str], GroupProgress] = {}

    def commit(self, batch: GraphBatch, watermark_us: int | None) -> None:
        for topic in self._specs:
            marks = {each.partition: each for (name, _), each in batch.marks.items() if name == topic}
            if not marks:
                continue
            run = next(iter(marks.values())).run
            if (topic, run) not in self._groups:
                self._groups[topic, run] = self._open(topic, run)
            self._groups[topic, run].commit(
                {each.partition: each.next for each in marks.values()},
                {each.partition: each.time for each in marks.values()},
                watermark_us,
            )

    def close(self) -> None:
        for each in self._groups.values():
            each.close()
        self._groups.clear()
