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
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.app.options import RunOptions
from headrace.app.query.checkpoint.manifest import Manifest
from headrace.errors import ConfigError
from headrace.objects import Objects, leave_probe, open_objects, remove_probe
from headrace.streams.engine import (
    MANIFEST,
    CheckpointRecord,
    CheckpointRecords,
    StateAtUrl,
    newest_record,
    restore,
)

__all__ = ["UrlCheckpoints", "reading_place", "refuse_local_stores"]

_FOLDER = "checkpoints"
_KINDS = ("queries", "dataflows")


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
        epochs = (name.rpartition(".")[2] for name in self._objects.names(_FOLDER))
        return max(map(int, epochs), default=0)

    def pull(self, buckets: int | None = None) -> bool:
        """Fills the folder of this machine with the newest of everything; False if there is nothing.

        Raises ConfigError if another number of buckets is wanted than a query has.
        """
        for kind in _KINDS:
            shutil.rmtree(self._data / kind, ignore_errors=True)
        self._restored.clear()
        newest: dict[str, str] = {}
        for name in self._objects.names(_FOLDER):  # sorted, and so by epoch
            folder, _, last = name.rpartition("/")
            if last.startswith(f"{MANIFEST}."):
                newest[folder] = name
        for folder, name in newest.items():
            self._pull(folder, name, buckets)
        return bool(newest)

    def _pull(self, folder: str, name: str, buckets: int | None) -> None:
        local = self._data / folder.removeprefix(f"{_FOLDER}/")
        local.mkdir(parents=True, exist_ok=True)
        (local / "manifest.json").write_bytes(self._objects.get(name) or b"")
        manifest = Manifest.read(local)
        assert manifest is not None
        record = newest_record(self._objects, folder, manifest.query_id)
        if record is not None:
            if buckets not in (None, manifest.buckets):
                raise ConfigError(
                    f"the state of {local.name} at {self.url} is in {manifest.buckets} buckets, and only "
                    f"state in a folder can be spread over {buckets} without a replay; omit --buckets, or "
                    "run it with --rebuild"
                )
            restore(record, local / "checkpoint")
            self._restored[record.query] = record

    def publish(self, folders: Iterable[Path], epoch: int) -> None:
        """Puts the manifests of these folders, as those of this run."""
        self._epoch = epoch
        for each in folders:
            data = (each / "manifest.json").read_bytes()
            self._objects.put(f"{self._folder(each)}/{MANIFEST}.{epoch:08}", [data])

    def records(self, folder: Path, query_id: str, require_owner: Callable[[], None]) -> CheckpointRecords:
        """Where the driver keeps what the batches of a query are made from."""
        state = StateAtUrl(url=self.url, folder=self._folder(folder), query=query_id, epoch=self._epoch)
        return CheckpointRecords(state, folder / "checkpoint", require_owner, self._restored.get(query_id))

    def _folder(self, local: Path) -> str:
        return f"{_FOLDER}/{local.relative_to(self._data)}"


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
