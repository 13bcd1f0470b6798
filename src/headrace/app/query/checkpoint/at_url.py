"""The checkpoints of an application at a URL, so that its driver can run on any machine.

Below the URL:

```text
app.json, status.json, beat                         for onlookers (`headrace.app.status.published`)
checkpoints/queries/STREAM/manifest.EPOCH           what the query of a stream computes, and its id
checkpoints/queries/STREAM/QUERY.BATCH.EPOCH        the record of a batch (`checkpoint_records`)
checkpoints/dataflows/VIEW/…                        the same for a view over several topics
state/QUERY/STAGE/BUCKET/BATCH.TOKEN                state of a bucket
```

On the machine of the driver is a folder with the same manifests and with the files of Spark's own
checkpoint. It is filled from the URL at every start, and nothing in it is needed again.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.app.options import RunOptions
from headrace.app.query.checkpoint.manifest import Manifest
from headrace.app.query.checkpoint.rescaling import QueryState
from headrace.crash_points import reached
from headrace.errors import ConfigError
from headrace.objects import Objects, leave_probe, open_objects, remove_probe
from headrace.streams.engine import (
    MANIFEST,
    BucketObjects,
    CheckpointRecord,
    CheckpointRecords,
    StateAtUrl,
    bucket_name,
    newest_record,
    put_record,
    read_receipts,
    rescale,
    restore,
)

__all__ = [
    "FOLDER",
    "QueryAtUrl",
    "UrlCheckpoints",
    "entries",
    "newest_queries",
    "reading_place",
    "refuse_local_stores",
]

FOLDER = "checkpoints"
_KINDS = ("queries", "dataflows")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAtUrl:
    """The newest of one query: `name` is that of its folder below the data folder.

    Without a record it has not begun a batch.
    """

    name: str
    manifest: Manifest
    record: CheckpointRecord | None


def newest_queries(objects: Objects) -> list[QueryAtUrl]:
    """What there is of each query, by name."""
    newest: dict[str, str] = {}
    for name in objects.names(FOLDER):  # sorted, and so by epoch
        folder, _, last = name.rpartition("/")
        if last.startswith(f"{MANIFEST}."):
            newest[folder] = name
    return [_newest(objects, folder, name) for folder, name in newest.items()]


def _newest(objects: Objects, folder: str, name: str) -> QueryAtUrl:
    manifest = Manifest.decode(objects.get(name) or b"", f"{objects.url}: {folder}")
    record = newest_record(objects, folder, manifest.query_id)
    if record is not None and record.tokens:
        # State was spread anew, and the manifest that says so had not been put yet.
        buckets = len({each.rpartition("/")[2] for each in record.tokens})
        manifest = replace(manifest, buckets=buckets)
    return QueryAtUrl(name=folder.removeprefix(f"{FOLDER}/"), manifest=manifest, record=record)


def entries(objects: Objects, record: CheckpointRecord, stage: int, bucket: int) -> BucketObjects:
    """The state of a bucket that the record's batch builds on."""
    token = record.tokens[bucket_name(stage, bucket)]
    return BucketObjects(objects, record.query, stage, bucket, batch=record.batch, made_from=token)


@contextmanager
def reading_place(options: RunOptions) -> Iterator[RunOptions]:
    """Options to read by, beside a driver that may run: with a URL, `data` is a copy of what is there now."""
    if options.url is None:
        yield options
        return
    with TemporaryDirectory(prefix="headrace-") as folder:
        found = UrlCheckpoints(options.url, Path(folder))
        if not found.pull():
            raise ConfigError(f"there is nothing at {options.url}; run the application first")
        yield replace(options, data=Path(folder))


class UrlCheckpoints:
    """Those of one run; `data` is its folder on this machine, where checkpoints have the same names."""

    def __init__(self, url: str, data: Path) -> None:
        self.url = url
        self._data = data
        self._objects: Objects = open_objects(url)
        self._restored: dict[str, CheckpointRecord] = {}
        self._epoch = 0

    def require_usable(self) -> None:
        """Raises ConfigError, with what to do, if this machine cannot keep anything there."""
        remove_probe(self._objects, leave_probe(self._objects))

    def highest_epoch(self) -> int:
        """The last run's that has left something here; 0 if there was none."""
        epochs = (name.rpartition(".")[2] for name in self._objects.names(FOLDER))
        return max(map(int, epochs), default=0)

    def pull(self) -> bool:
        """Fills the folder of this machine with the newest of everything; False if there is nothing."""
        for kind in _KINDS:
            shutil.rmtree(self._data / kind, ignore_errors=True)
        self._restored.clear()
        found = newest_queries(self._objects)
        for query in found:
            local = self._data / query.name
            query.manifest.write(local)
            if query.record is not None:
                restore(query.record, local / "checkpoint")
                self._restored[query.record.query] = query.record
        return bool(found)

    def claimed(self, epoch: int) -> None:
        """This run owns the application now: what it puts is named by its epoch."""
        self._epoch = epoch

    def spread(self, folder: Path, manifest: Manifest, state: QueryState, buckets: int) -> Manifest:
        """Spreads the state of a query over so many buckets, as `rescaling` does where it is in a folder.

        It is put under tokens of its own, which the new record has: that makes it the state that counts.
        """
        record = self._restored.get(manifest.query_id)
        if record is not None and record.tokens:
            tokens = self._spread(record, state, manifest.buckets, buckets)
            record = replace(record, epoch=self._epoch, tokens=tokens)
            put_record(self._objects, self._folder(folder), record)
            reached("rescaled")
            self._restored[record.query] = record
        manifest = replace(manifest, buckets=buckets)
        manifest.write(folder)
        return manifest

    def _spread(self, record: CheckpointRecord, state: QueryState, before: int, count: int) -> dict[str, str]:
        """The tokens of the new buckets, by stage and bucket."""
        tokens: dict[str, str] = {}
        for number, stage in enumerate(state.stages):
            old = [entries(self._objects, record, number, each) for each in range(before)]
            new = [
                BucketObjects(self._objects, record.query, number, each, batch=record.batch, made_from="")
                for each in range(count)
            ]
            last = record.batch - 1
            for bucket in rescale(old, new, last, stage.new_states, stage.keys, state.lowest_us):
                found = read_receipts(new[bucket].receipt or b"{}")
                tokens |= {place: each.token for place, each in found.items()}
                reached("bucket rescaled")
        return tokens

    def publish(self, folders: Iterable[Path]) -> None:
        """Puts the manifests of these folders, as those of this run."""
        for each in folders:
            data = (each / "manifest.json").read_bytes()
            self._objects.put(f"{self._folder(each)}/{MANIFEST}.{self._epoch:08}", [data])

    def records(self, folder: Path, query_id: str, require_owner: Callable[[], None]) -> CheckpointRecords:
        """Where the driver keeps what the batches of a query are made from."""
        state = StateAtUrl(url=self.url, folder=self._folder(folder), query=query_id, epoch=self._epoch)
        return CheckpointRecords(state, folder / "checkpoint", require_owner, self._restored.get(query_id))

    def _folder(self, local: Path) -> str:
        return f"{FOLDER}/{local.relative_to(self._data)}"


def refuse_local_stores(stores: dict[str, str], frames: Iterable[str], url: str) -> None:
    """Raises ConfigError for what a driver on another machine could not go on with."""
    for name in frames:
        raise ConfigError(
            f"view {name!r} is a plain DataFrame, whose state and checkpoint are Spark's own and cannot be "
            f"kept at {url}; run it with --data on a folder that all machines share"
        )
    if url.startswith("file:"):
        return
    for name, store in stores.items():
        kind = store.partition("://")[0]
        if kind in ("sqlite", "memory", "parquet"):
            raise ConfigError(
                f"view {name!r} is kept on this machine ({kind}), but its checkpoint at {url}: a driver on "
                "another machine would not find it. Keep it in PostgreSQL or in a topic (store= of the view "
                "or the App)"
            )
