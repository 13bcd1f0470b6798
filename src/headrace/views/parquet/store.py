"""Views as Parquet files, which every analytics tool reads.

A batch adds a file with the rows it has changed, and one with the keys it has removed if
there are any; then a manifest that lists them replaces the previous one. Small files are
merged as they accumulate (`manifest.merge_from`), which drops superseded rows. Files that are
no longer listed stay for a while, for readers of the previous manifest.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.clock import Clock, SystemClock
from headrace.crash_points import reached
from headrace.errors import ConfigError, RequestError, RetriableError
from headrace.objects import open_objects, require_supported
from headrace.views.batch import NetChanges, StagedChanges, ViewBatch, net_changes, overlaid
from headrace.views.changes import ViewChange
from headrace.views.ledger import Ledger, Reflected
from headrace.views.parquet.files import ViewFolder
from headrace.views.parquet.manifest import Part, ViewManifest, first_to_merge
from headrace.views.parquet.objects import MANIFESTS, ViewObjects, epoch_of
from headrace.views.parquet.view_files import ViewFiles
from headrace.views.schema import ViewSchema
from headrace.views.selection import Choose, select
from headrace.views.store import LedgeredStore, Snapshot, StagingStore, require_view

__all__ = ["Merge", "ParquetFolder", "ParquetStager", "ParquetStore", "ParquetUrl"]

_GRACE_MS = 10 * 60_000
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Parts of a view to write as one; plain data, so that another process can do it.

    `number` is for the names of the new files. With `is_whole` there are no older parts, and so
    nothing that removed keys would have to hide.
    """

    files: ViewFiles
    schema: ViewSchema
    parts: tuple[Part, ...]
    number: int
    is_whole: bool

    def run(self) -> Part | None:
        """Writes the merged part; None if nothing is left."""
        net = _overlaid(self.files, self.schema, self.parts)
        if self.is_whole:
            net = NetChanges(net.rows, net.removed.slice(0, 0))
        return self.files.write(net, self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetStager:
    """Writes parts of a view to files that no manifest lists yet, where all machines share them."""

    files: ViewFiles
    schema: ViewSchema

    def stage(self, changes: pa.Table, *, batch_id: int, distinct: bool) -> StagedChanges:
        self.files.require_reachable()
        part = self.files.write(net_changes(self.schema, changes, distinct=distinct), batch_id)
        reached("part staged")
        return StagedChanges(changed=changes.num_rows, place={} if part is None else asdict(part))


class ParquetFolder:
    """A folder with one folder per view; raises ConfigError if it cannot be made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"cannot keep views in {folder}: {error.strerror}; give a folder that can be written"
            ) from error

    def files(self, view: str) -> ViewFolder:
        return ViewFolder(self.folder.resolve() / view)

    def views(self) -> list[str]:
        return sorted(each.parent.name for each in self.folder.glob("*/manifest.json"))


class ParquetUrl:
    """The same by URL; `epoch` is that of the run which writes."""

    def __init__(self, url: str, epoch: int = 0) -> None:
        self.url = url
        self.epoch = epoch
        require_supported("the store", url)

    def files(self, view: str) -> ViewObjects:
        return ViewObjects(self.url, view, self.epoch)

    def views(self) -> list[str]:
        return sorted({name.partition("/")[0] for name in self._manifests()})

    def highest_epoch(self) -> int:
        """The highest under which a view was written; 0 if there is none."""
        return max(map(epoch_of, self._manifests()), default=0)

    def _manifests(self) -> list[str]:
        names = open_objects(self.url).names("")
        return [name for name in names if name.split("/")[1:-1] == [MANIFESTS]]


class ParquetStore(StagingStore, LedgeredStore):
    """A ViewStore with one folder per view. Keeps no changes for followers.

    Reading merges all files in memory and caches the result until the view changes: meant
    for views that fit in memory, and for tools that read files. `grace_ms` is how long a
    file stays after the manifest stopped listing it.
    """

    def __init__(
        self,
        place: ParquetFolder | ParquetUrl,
        *,
        grace_ms: int = _GRACE_MS,
        clock: Clock | None = None,
    ) -> None:
        self.place = place
        self._grace_ms = grace_ms
        self._clock = clock or SystemClock()
        self._cached: dict[str, tuple[tuple[Part, ...], pa.Table]] = {}
        self._lock = threading.Lock()
        self._run: Callable[[Callable[[], Any]], Any] = _here

    def stager(self, schema: ViewSchema) -> ParquetStager:
        return ParquetStager(files=self._folder(schema.name), schema=schema)

    def work_by(self, run: Callable[[Callable[[], Any]], Any]) -> None:
        """Has `run` call merges, in a process that sees the same folder."""
        self._run = run

    def prepare(self, schema: ViewSchema) -> None:
        folder = self._folder(schema.name)
        with self._lock, folder.locked(make=True):
            manifest = folder.manifest()
            if manifest is None:
                folder.replace(ViewManifest(Ledger(schema=schema)))
                return
            manifest.ledger.require_rows_of(schema)
            self._tidy(folder, manifest)

    def begin(
        self, view: str, query_id: str, *, schema: ViewSchema | None = None, first_batch: int = 0
    ) -> Reflected:
        folder = self._folder(view)
        with self._lock, folder.locked():
            manifest = self._manifest(view)
            ledger = manifest.ledger.begin(query_id, schema, first_batch)
            folder.replace(manifest.followed_by(ledger, manifest.parts, self._clock.now_ms()))
            return ledger.reflected

    def apply(self, view: str, batch: ViewBatch) -> bool:
        folder = self._folder(view)
        with self._lock, folder.locked():
            manifest = self._manifest(view)
            accepted = manifest.ledger.accept(batch)
            if accepted is None:
                return False
            reached("begun")
            schema = accepted.ledger.schema
            new = folder.write(
                net_changes(schema, batch.changes, distinct=batch.distinct), manifest.number + 1
            )
            staged = self._staged(folder, batch, manifest.number + 1)
            reached("rows written")
            parts = [*(() if accepted.resets else manifest.parts), *([] if new is None else [new]), *staged]
            ledger = accepted.ledger.with_sequence(accepted.ledger.sequence + batch.changed)
            manifest = manifest.followed_by(ledger, parts, self._clock.now_ms())
            reached("ledger written")
            folder.replace(manifest)
            reached("committed")
            self._merge(folder, manifest)
            return True

    def _staged(self, folder: ViewFiles, batch: ViewBatch, number: int) -> list[Part]:
        parts = [replace(Part(**each.place), number=number) for each in batch.staged if each.place]
        if missing := folder.missing(parts):
            raise ConfigError(
                f"{folder} has no {missing[0]}, which an executor wrote: keep Parquet views in a place "
                "that all executors share with the driver, a folder mounted at the same path or a URL of the "
                "same endpoint"
            )
        return parts

    def _snapshot(self, view: str, choose: Choose) -> Snapshot:
        for _ in range(_ATTEMPTS):
            manifest = self._manifest(view)
            try:
                rows = self._rows(manifest)
            except FileNotFoundError:  # so slow that the files were removed: use the newer ones
                continue
            selection = choose(manifest.ledger.schema)
            return Snapshot(select(rows, selection), manifest.ledger.reflected)
        raise RetriableError(
            f"view {view!r}: its files were replaced faster than they could be read; try again"
        )

    def changes(self, view: str, since: int = 0, limit: int = 1_000) -> list[ViewChange]:
        del since, limit
        self._ledger(view)
        raise RequestError(
            "a Parquet store keeps no changes for followers; use SQLite, PostgreSQL or a topic for that"
        )

    def views(self) -> list[str]:
        return self.place.views()

    def drop(self, view: str) -> None:
        folder = self._folder(view)
        with self._lock, folder.locked():
            if folder.manifest() is not None:
                folder.destroy()
            self._cached.pop(view, None)

    def close(self) -> None:
        self._cached.clear()

    def _folder(self, view: str) -> ViewFiles:
        if "/" in view or view.startswith(".") or not view:
            raise RequestError(f"there is no view {view!r}")
        return self.place.files(view)

    def _manifest(self, view: str) -> ViewManifest:
        manifest = self._folder(view).manifest()
        if manifest is None:
            require_view(None, view, self.views())
        assert manifest is not None
        return manifest

    def _ledger(self, view: str) -> Ledger:
        return self._manifest(view).ledger

    def _rows(self, manifest: ViewManifest) -> pa.Table:
        schema = manifest.ledger.schema
        cached = self._cached.get(schema.name)
        if cached is None or cached[0] != manifest.parts:
            folder = self._folder(schema.name)
            rows = _overlaid(folder, schema, manifest.parts).rows
            self._cached[schema.name] = cached = (manifest.parts, rows)
        return cached[1]

    def _merge(self, folder: ViewFiles, manifest: ViewManifest) -> None:
        """Merges small parts if there are enough, as a separate step: the batch is durable already."""
        start = first_to_merge(manifest.parts)
        if start is not None:
            merge = Merge(
                files=folder,
                schema=manifest.ledger.schema,
                parts=manifest.parts[start:],
                number=manifest.number + 1,
                is_whole=start == 0,
            )
            merged: Part | None = self._run(merge.run)
            parts = [*manifest.parts[:start], *([] if merged is None else [merged])]
            manifest = manifest.followed_by(manifest.ledger, parts, self._clock.now_ms())
            folder.replace(manifest)
        self._remove_expired(folder, manifest)
        reached("tidied")

    def _tidy(self, folder: ViewFiles, manifest: ViewManifest) -> None:
        """Records orphaned files of a crash as garbage, and removes what is old enough."""
        orphans = dict.fromkeys(folder.orphans(manifest), self._clock.now_ms())
        if orphans:
            manifest = ViewManifest(
                manifest.ledger, manifest.parts, manifest.number + 1, {**manifest.garbage, **orphans}
            )
            folder.replace(manifest)
        self._remove_expired(folder, manifest)

    def _remove_expired(self, folder: ViewFiles, manifest: ViewManifest) -> None:
        expired = manifest.expired(self._clock.now_ms(), self._grace_ms)
        if expired:
            folder.remove(expired)
            folder.replace(manifest.without_garbage(expired))


def _here(work: Callable[[], Any]) -> Any:
    return work()


def _overlaid(folder: ViewFiles, schema: ViewSchema, parts: Iterable[Part]) -> NetChanges:
    nets = [folder.read(schema, part) for part in parts]
    if not nets:
        return NetChanges(schema.columns.empty_table(), pa.schema(schema.key_fields()).empty_table())
    return overlaid(schema, nets)
