"""The queries of an application that does not run, as they are in its data folder, or at its URL."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headrace.app.query.checkpoint import Manifest, entries, last_begun, last_commit, newest_queries
from headrace.app.query.places import stage_folder
from headrace.app.snapshot.layout import EPOCH
from headrace.objects import Objects
from headrace.streams.engine import (
    BucketFiles,
    BucketLog,
    CheckpointRecord,
    bucket_name,
    record_at_rest,
)

__all__ = ["KINDS", "QueryAtRest", "queries_at_url", "queries_in_folder"]

KINDS = ("queries", "dataflows")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAtRest:
    """One query: `name` is that of its folder, `state` is where the state of a bucket of a stage is read.

    Without a record it has not begun a batch.
    """

    name: str
    manifest: Manifest
    record: CheckpointRecord | None
    state: Callable[[int, int], BucketLog]


def queries_at_url(place: Objects) -> list[QueryAtRest]:
    return [
        QueryAtRest(
            name=each.name,
            manifest=each.manifest,
            record=each.record,
            state=_nothing if each.record is None else partial(entries, place, each.record),
        )
        for each in newest_queries(place)
    ]


def queries_in_folder(data: Path) -> list[QueryAtRest]:
    folders = [folder for kind in KINDS for folder in sorted((data / kind).glob("*"))]
    found = ((folder, Manifest.read(folder)) for folder in folders)
    return [_in_folder(data, folder, manifest) for folder, manifest in found if manifest is not None]


def _in_folder(data: Path, folder: Path, manifest: Manifest) -> QueryAtRest:
    checkpoint, last = folder / "checkpoint", last_commit(folder)
    state = partial(_files, folder, manifest.query_id)
    record = None
    if last_begun(folder) >= 0:
        stages = range(len(_stages(folder))) if last >= 0 else ()
        tokens = {
            bucket_name(stage, bucket): state(stage, bucket).head(last).token
            for stage in stages
            for bucket in range(manifest.buckets)
        }
        record = record_at_rest(manifest.query_id, checkpoint, last + 1, EPOCH, tokens)
    return QueryAtRest(name=str(folder.relative_to(data)), manifest=manifest, record=record, state=state)


def _stages(folder: Path) -> list[Path]:
    if folder.parent.name == "queries":
        return [stage_folder(folder, 0)]
    stages = folder / "checkpoint" / "stages"
    return list(stages.iterdir()) if stages.is_dir() else []


def _files(folder: Path, query: str, stage: int, bucket: int) -> BucketFiles:
    return BucketFiles(stage_folder(folder, stage), bucket, query)


def _nothing(stage: int, bucket: int) -> BucketLog:
    raise LookupError((stage, bucket))  # a query without a record has no state
