"""Starts an application from a snapshot: copies it to where the application will keep its checkpoints.

A note there says which snapshot it is, and whether it has all arrived, so that the same command copies it
once, however often it is given, and goes on with a copy that was cut off.
"""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from headrace.app.options import RunOptions
from headrace.app.query.checkpoint import FOLDER
from headrace.app.query.places import stage_folder
from headrace.app.snapshot.layout import Snapshot, manifest_name, open_place, read_snapshot
from headrace.app.snapshot.source import KINDS, QueryAtRest, queries_at_url
from headrace.checked_json import decode_fields, encode_fields
from headrace.crash_points import reached
from headrace.errors import ConfigError
from headrace.objects import Objects, open_objects
from headrace.streams.engine import (
    BucketFiles,
    BucketLog,
    BucketObjects,
    CheckpointRecord,
    copy_bucket,
    put_record,
    restore,
)

__all__ = ["restore_snapshot"]

_NOTE = "restored.json"
_THREADS = 8


def restore_snapshot(app: str, options: RunOptions, say: Callable[[str], None]) -> None:
    """Copies the snapshot that the options name, unless that has been done; nothing if they name none.

    Raises ConfigError if there is no complete snapshot of this application, or if the place has another.
    """
    if options.from_snapshot is None:
        return
    source = open_place("--from", options.from_snapshot)
    snapshot = read_snapshot(source)
    if snapshot is None:
        raise ConfigError(f"there is no complete snapshot at {source.url}; make one with headrace snapshot")
    if snapshot.app != app:
        raise ConfigError(f"the snapshot at {source.url} is of {snapshot.app}, and this application is {app}")
    target = open_objects(options.url or options.data.resolve().as_uri())
    if _is_done(target, snapshot, options):
        return
    _note(target, snapshot, is_complete=False)
    for query in queries_at_url(source):
        if options.url is None:
            _to_folder(query, options.data / query.name)
        else:
            _to_url(query, target)
        reached("query restored")
    _note(target, snapshot, is_complete=True)
    say(f"{app} starts from the snapshot at {source.url}")


def _is_done(target: Objects, snapshot: Snapshot, options: RunOptions) -> bool:
    """Whether it was copied there before; raises ConfigError if something else is there."""
    data = target.get(_NOTE)
    note = None if data is None else decode_fields(data, ()).fields
    if note is not None and note["snapshot"] == snapshot.id:
        return bool(note["is_complete"])
    if note is not None or _has_queries(target, options):
        raise ConfigError(
            f"{options.url or options.data} has the checkpoints of an application already; omit --from to go "
            "on with them, or name another --data"
        )
    return False


def _has_queries(target: Objects, options: RunOptions) -> bool:
    if options.url is not None:
        return bool(target.names(FOLDER))
    return any(any((options.data / kind).glob("*")) for kind in (*KINDS, "frames"))


def _note(target: Objects, snapshot: Snapshot, *, is_complete: bool) -> None:
    target.put(_NOTE, [encode_fields({"snapshot": snapshot.id, "is_complete": is_complete})])


def _to_folder(query: QueryAtRest, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # of an attempt that was cut off
    if query.record is not None:
        restore(query.record, folder / "checkpoint")
        _copy_state(query, query.record, partial(_files, folder, query.record.query))
    query.manifest.write(folder)


def _files(folder: Path, query: str, stage: int, bucket: int) -> BucketFiles:
    return BucketFiles(stage_folder(folder, stage), bucket, query)


def _to_url(query: QueryAtRest, target: Objects) -> None:
    if query.record is not None:
        _copy_state(query, query.record, partial(_objects, target, query.record))
        put_record(target, f"{FOLDER}/{query.name}", query.record)
    target.put(manifest_name(query.name), [query.manifest.encode()])


def _objects(target: Objects, record: CheckpointRecord, stage: int, bucket: int) -> BucketObjects:
    return BucketObjects(target, record.query, stage, bucket, batch=record.batch, made_from="")


def _copy_state(query: QueryAtRest, record: CheckpointRecord, to: Callable[[int, int], BucketLog]) -> None:
    def copy(place: str) -> None:
        stage, bucket = map(int, place.split("/"))
        copy_bucket(query.state(stage, bucket), to(stage, bucket), record.batch - 1)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="snapshot") as threads:
        list(threads.map(copy, record.tokens))
    reached("state restored")
