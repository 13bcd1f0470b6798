"""Checkpoints and their manifests: which one a query goes on from, and when it starts over."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from headrace.app.options import RunOptions
from headrace.app.plan.planner import AppPlan, PlannedStream
from headrace.app.plan.topology import makers_first, makers_of
from headrace.app.query.checkpoint.derived_topics import build_of, is_of_another_build, outputs_now
from headrace.app.query.checkpoint.fit import describe_query, query_reasons
from headrace.app.query.checkpoint.manifest import FORMAT, Manifest, SideProgress
from headrace.app.query.checkpoint.rescaling import Spread, state_of_stream, with_buckets
from headrace.app.query.checkpoint.shadow_build import beginning
from headrace.app.query.checkpoint.slots import BUCKETS
from headrace.app.query.checkpoint.spark_checkpoint import last_position
from headrace.app.query.places import graph_folder, place
from headrace.client import Connection, GroupOffsets, RawFetcher
from headrace.errors import ConfigError
from headrace.streams import StreamSpec

__all__ = [
    "BUCKETS",
    "discard",
    "done_so_far",
    "goes_on_from",
    "ready_manifests",
    "side_progress",
]


def ready_manifests(
    plan: AppPlan,
    options: RunOptions,
    connection: Connection,
    *,
    rebuild: bool,
    progress: Mapping[str, SideProgress] | None = None,
    new_buckets: int = BUCKETS,
    say: Callable[[str], None] = lambda _: None,
    spread: Spread | None = None,
) -> dict[str, Manifest]:
    """The manifest of every query; raises ConfigError if a checkpoint does not fit and may not be rebuilt.

    `progress` is what `side_progress` says, for queries that replace others of the very same code.
    Where another number of buckets is wanted, the state of a query that goes on is spread over them;
    one that begins has `new_buckets` of them unless the options say how many.
    """
    reasons = {planned.name: _reasons(planned, options) for planned in plan.streams}
    unfit = {name: each for name, each in reasons.items() if each}
    if unfit and not rebuild:
        raise ConfigError(_unfit_message(unfit))
    for name in reasons:
        folder = options.query_folder(name)
        if rebuild or Manifest.read(folder) is None:
            discard(folder)
    makers = makers_of(plan.streams)
    found: dict[str, Manifest] = {}
    for planned in makers_first(plan.streams):
        folder, maker = options.query_folder(planned.name), found.get(makers.get(planned.name, ""))
        manifest = _kept_manifest(planned, folder, maker)
        if manifest is None:
            buckets = options.buckets or new_buckets
            manifest = _new_manifest(
                plan.app.name, planned, connection, (progress or {}).get(planned.name), maker, buckets
            )
        else:
            manifest = with_buckets(folder, manifest, state_of_stream(planned), options.buckets, say, spread)
        manifest.write(folder)
        found[planned.name] = manifest
    return {planned.name: found[planned.name] for planned in plan.streams}


def side_progress(plan: AppPlan, options: RunOptions, connection: Connection) -> dict[str, SideProgress]:
    """Up to where the dead and late records of each query are on their topics, by partition.

    Progress is committed behind them, so what it says has been written, by this query or
    by those it replaced.
    """
    found: dict[str, SideProgress] = {}
    for planned in plan.streams:
        spec, manifest = planned.stream.spec, Manifest.read(options.query_folder(planned.name))
        done = {str(partition): offset for partition, offset in _committed(spec, connection).items()}
        found[planned.name] = _written(manifest, done)
    for flow in plan.graphs:
        manifest = Manifest.read(graph_folder(options.data, flow.view.name))
        done = {
            place(source.spec.topic, partition): offset
            for source in flow.graph.sources
            for partition, offset in _committed(source.spec, connection).items()
        }
        found[flow.name] = _written(manifest, done)
    return found


def _committed(spec: StreamSpec, connection: Connection) -> dict[int, int]:
    with RawFetcher(connection) as fetcher, GroupOffsets(connection, spec.group) as offsets:
        found = offsets.fetch(spec.topic, list(fetcher.layout(spec.topic).leaders))
    return {partition: each.offset for partition, each in found.items()}


def _written(manifest: Manifest | None, done: Mapping[str, int]) -> SideProgress:
    written = dict(manifest.side_offsets) if manifest is not None else {}
    for name, offset in done.items():
        written[name] = max(written.get(name, 0), offset)
    return SideProgress(written, () if manifest is None else (manifest.query_id, *manifest.replaces))


def _reasons(planned: PlannedStream, options: RunOptions) -> list[str]:
    folder = options.query_folder(planned.name)
    manifest = Manifest.read(folder)
    if manifest is None or not _has_checkpoint(folder):
        return []
    if manifest.format < FORMAT:
        return [f"the state was kept by an older version (format {manifest.format}, now {FORMAT})"]
    return query_reasons(manifest.query, planned)


def _unfit_message(unfit: Mapping[str, list[str]]) -> str:
    """One line: what changed, each reason once with the queries that it is true of, and what to do."""
    queries: dict[str, list[str]] = {}
    for name, reasons in unfit.items():
        for reason in reasons:
            queries.setdefault(reason, []).append(name)
    said = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in queries.items())
    return (
        f"the application, or Headrace, changed in ways its checkpoint cannot follow: {said}. "
        "Run it with --rebuild to rebuild its views from the log, or undo the change"
    )


def _kept_manifest(planned: PlannedStream, folder: Path, maker: Manifest | None) -> Manifest | None:
    """The manifest to go on with; None where there is no checkpoint, or one of records that were replaced.

    `maker` is that of the query which makes the stream's topic, if one of the application does.
    """
    manifest = Manifest.read(folder) if _has_checkpoint(folder) else None
    if manifest is None:
        return None
    if maker is not None and is_of_another_build(manifest, maker):
        discard(folder)
        return None
    return replace(manifest, query=describe_query(planned))


def _new_manifest(
    app: str,
    planned: PlannedStream,
    connection: Connection,
    progress: SideProgress | None,
    maker: Manifest | None,
    buckets: int,
) -> Manifest:
    """For a query that begins, and so with a new id.

    It counts its batches from 0 again: under its old id the stores would take them for
    repetitions.
    """
    build = build_of(planned.name, maker)
    begins = {
        str(each): max(offset, build.get(str(each), 0))
        for each, offset in beginning(planned.stream.spec, connection).items()
    }
    return Manifest.new(
        describe_query(planned),
        buckets,
        progress=progress,
        begins=begins,
        outputs=outputs_now(app, planned, connection),
        reads="" if maker is None else maker.query_id,
    )


def discard(folder: Path) -> None:
    """Removes a query's manifest and checkpoint together, so that no crash leaves the half of them.

    A checkpoint without its manifest is of no use either: nobody knows whose it was.
    """
    aside = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(aside, ignore_errors=True)
    if folder.is_dir():
        folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def done_so_far(folder: Path) -> dict[int, int]:
    """The next offset of each partition behind the last batch that the checkpoint knows to be done."""
    position = last_position(folder)
    return {} if position is None else {int(each): offset for each, offset in position["next"].items()}


def goes_on_from(folder: Path, spec: StreamSpec) -> dict[int, int]:
    """The next offset of each partition for a query that starts now: after its checkpoint, or where it began.

    Partitions that came since are left out.
    """
    return {**dict(spec.begins), **done_so_far(folder)}


def _has_checkpoint(folder: Path) -> bool:
    offsets = folder / "checkpoint" / "offsets"
    return offsets.is_dir() and any(offsets.iterdir())
