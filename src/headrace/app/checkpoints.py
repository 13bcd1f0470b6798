"""Checkpoints and their manifests: which one a query goes on from, and when it begins anew."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from headrace.app.derived import build_of, is_of_another_build, makers_first, makers_of, outputs_now
from headrace.app.manifest import FORMAT, Manifest, Told, describe_query, reasons_to_rebuild
from headrace.app.planning import AppPlan, PlannedStream
from headrace.app.rebuilds import beginning
from headrace.app.starting import RunOptions
from headrace.client import Connection, GroupOffsets, RawFetcher
from headrace.errors import ConfigError

__all__ = ["BUCKETS", "done_so_far", "last_commit", "ready_manifests", "told_so_far"]

BUCKETS = 8


def ready_manifests(
    plan: AppPlan,
    options: RunOptions,
    connection: Connection,
    *,
    rebuild: bool,
    told: Mapping[str, Told] | None = None,
) -> dict[str, Manifest]:
    """The manifest of every query; raises ConfigError if a checkpoint does not fit and may not be rebuilt.

    `told` is what `told_so_far` says, for queries that replace others of the very same code.
    """
    reasons = {planned.name: _reasons(planned, options) for planned in plan.streams}
    unfit = {name: each for name, each in reasons.items() if each}
    if unfit and not rebuild:
        raise ConfigError(_unfit_message(unfit))
    for name in reasons:
        folder = options.query_folder(name)
        if rebuild or Manifest.read(folder) is None:
            _discard(folder)
    makers = makers_of(plan.streams)
    found: dict[str, Manifest] = {}
    for planned in makers_first(plan.streams):
        folder, maker = options.query_folder(planned.name), found.get(makers.get(planned.name, ""))
        manifest = _kept_manifest(planned, folder, maker)
        if manifest is None:
            manifest = _new_manifest(
                plan.app.name, planned, connection, (told or {}).get(planned.name), maker
            )
        manifest.write(folder)
        found[planned.name] = manifest
    return {planned.name: found[planned.name] for planned in plan.streams}


def told_so_far(plan: AppPlan, options: RunOptions, connection: Connection) -> dict[str, Told]:
    """Up to where the dead and late records of each stream are on their topics, by partition.

    Progress is committed behind them, so what it says has been told, by this query or
    by those it replaced.
    """
    found: dict[str, Told] = {}
    for planned in plan.streams:
        spec, manifest = planned.stream.spec, Manifest.read(options.query_folder(planned.name))
        with RawFetcher(connection) as fetcher, GroupOffsets(connection, spec.group) as offsets:
            committed = offsets.fetch(spec.topic, list(fetcher.layout(spec.topic).leaders))
        told = dict(manifest.told) if manifest is not None else {}
        for partition, each in committed.items():
            told[str(partition)] = max(told.get(str(partition), 0), each.offset)
        queries = () if manifest is None else (manifest.query_id, *manifest.replaces)
        found[planned.name] = Told(told, queries)
    return found


def _reasons(planned: PlannedStream, options: RunOptions) -> list[str]:
    folder = options.query_folder(planned.name)
    manifest = Manifest.read(folder)
    if manifest is None or not _has_checkpoint(folder):
        return []
    if manifest.format < FORMAT:
        return [f"its state was kept by an older version (format {manifest.format}, now {FORMAT})"]
    return reasons_to_rebuild(manifest.query, describe_query(planned))


def _unfit_message(unfit: Mapping[str, list[str]]) -> str:
    lines = [f"  {name}: {reason}" for name, reasons in unfit.items() for reason in reasons]
    return (
        "the application, or Headrace, changed in ways its checkpoint cannot follow:\n"
        + "\n".join(lines)
        + "\n"
        "Run it with --rebuild to build its views anew from the log, or undo the change"
    )


def _kept_manifest(planned: PlannedStream, folder: Path, maker: Manifest | None) -> Manifest | None:
    """The manifest to go on with; None where there is no checkpoint, or one of records that were replaced.

    `maker` is that of the query which makes the stream's topic, if one of the application does.
    """
    manifest = Manifest.read(folder) if _has_checkpoint(folder) else None
    if manifest is None:
        return None
    if maker is not None and is_of_another_build(manifest, maker):
        _discard(folder)
        return None
    return replace(manifest, query=describe_query(planned))


def _new_manifest(
    app: str, planned: PlannedStream, connection: Connection, told: Told | None, maker: Manifest | None
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
        BUCKETS,
        told=told,
        begins=begins,
        outputs=outputs_now(app, planned, connection),
        reads="" if maker is None else maker.query_id,
    )


def _discard(folder: Path) -> None:
    """Removes a query's manifest and checkpoint together, so that no crash leaves the half of them.

    A checkpoint without its manifest is of no use either: nobody knows whose it was.
    """
    aside = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(aside, ignore_errors=True)
    if folder.is_dir():
        folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def last_commit(folder: Path) -> int:
    """The last batch that the checkpoint knows to be done; -1 before the first."""
    commits = folder / "checkpoint" / "commits"
    names = [each.name for each in commits.iterdir()] if commits.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def done_so_far(folder: Path) -> dict[int, int]:
    """The next offset of each partition behind the last batch that the checkpoint knows to be done."""
    last = last_commit(folder)
    if last < 0:
        return {}
    lines = (folder / "checkpoint" / "offsets" / str(last)).read_text(encoding="utf-8").splitlines()
    following = json.loads(lines[-1])["next"]  # behind a version and a line of Spark's own
    return {int(partition): offset for partition, offset in following.items()}


def _has_checkpoint(folder: Path) -> bool:
    offsets = folder / "checkpoint" / "offsets"
    return offsets.is_dir() and any(offsets.iterdir())
