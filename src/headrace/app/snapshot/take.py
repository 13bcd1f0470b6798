"""Copies an application that does not run: its queries, their positions and state."""

import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from headrace.app.options import RunOptions
from headrace.app.query.checkpoint import FOLDER
from headrace.app.snapshot.layout import (
    EPOCH,
    FILE,
    Snapshot,
    SnapshotQuery,
    manifest_name,
    read_snapshot,
)
from headrace.app.snapshot.source import QueryAtRest, queries_at_url, queries_in_folder
from headrace.crash_points import reached
from headrace.errors import ConfigError, CorruptionError
from headrace.objects import Objects, open_objects
from headrace.streams.engine import BucketObjects, copy_bucket, put_record

__all__ = ["take_snapshot"]

_THREADS = 8
_TRIES = 3  # at a URL, where a driver that is started meanwhile removes what it has replaced


def take_snapshot(
    app: str,
    options: RunOptions,
    to: Objects,
    *,
    left_behind: Mapping[str, str],
    on_query: Callable[[SnapshotQuery], None],
) -> Snapshot:
    """The snapshot, complete; `on_query` is told of each query once it has been copied.

    Raises ConfigError if there is nothing to copy, or something in the way.
    """
    _require_free(to)
    if (options.data / "frames").is_dir() and any((options.data / "frames").iterdir()):
        raise ConfigError(
            f"{app} has views of plain DataFrames, whose state and checkpoint are Spark's own and cannot be "
            "copied; move their views to streams and tables, or leave the application where it is"
        )
    for left in range(_TRIES, 0, -1):
        found = _queries(options)
        if not found:
            raise ConfigError(f"there is nothing at {options.url or options.data}; run the application first")
        to.remove([*to.names(FOLDER), *to.names("state")])  # of an attempt that was cut off
        try:
            queries = [_copy(each, to) for each in found]
            break
        except CorruptionError:
            if left == 1 or options.url is None:
                raise
    for each in queries:
        on_query(each)
    snapshot = Snapshot(
        id=secrets.token_hex(8), app=app, at=time.time(), queries=tuple(queries), left_behind=left_behind
    )
    reached("snapshot copied")
    to.put(FILE, [snapshot.encode()])
    return snapshot


def _require_free(to: Objects) -> None:
    found = read_snapshot(to)
    if found is not None:
        raise ConfigError(f"there is a snapshot of {found.app} at {to.url} already; name another place")
    epochs = {int(name.rpartition(".")[2]) for name in to.names(FOLDER)}
    if epochs - {EPOCH}:
        raise ConfigError(f"an application keeps its checkpoints at {to.url}; name another place")


def _queries(options: RunOptions) -> list[QueryAtRest]:
    if options.url is None:
        return queries_in_folder(options.data)
    return queries_at_url(open_objects(options.url))


def _copy(query: QueryAtRest, to: Objects) -> SnapshotQuery:
    record, copied = query.record, 0
    if record is not None:
        places = [tuple(map(int, each.split("/"))) for each in record.tokens]

        def copy(place: tuple[int, ...]) -> int:
            stage, bucket = place
            target = BucketObjects(to, record.query, stage, bucket, batch=record.batch, made_from="")
            return copy_bucket(query.state(stage, bucket), target, record.batch - 1)

        with ThreadPoolExecutor(_THREADS, thread_name_prefix="snapshot") as threads:
            copied = sum(threads.map(copy, places))
        reached("state copied")
        put_record(to, f"{FOLDER}/{query.name}", replace(record, epoch=EPOCH))
    to.put(manifest_name(query.name), [query.manifest.encode()])
    reached("query copied")
    return SnapshotQuery(
        name=query.name,
        query=query.manifest.query_id,
        batch=-1 if record is None else record.batch - 1,
        is_under_way=record is not None and f"offsets/{record.batch}" in record.files,
        buckets=query.manifest.buckets,
        state_bytes=copied,
    )
