"""Views as Parquet files, which every analytics tool reads.

A batch adds a file of the rows it put in place, and one of the keys it removed if there
are any; then the manifest that names them takes the place of the one before. Small
files are merged as they come (`parquet_manifest.merge_from`), and what was superseded
goes then. Files that are no longer named stay for a while, for readers that have the
manifest before.
"""

import threading
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from headrace.clock import Clock, SystemClock
from headrace.errors import ConfigError, RequestError, RetriableError
from headrace.steps import reached
from headrace.views.batch import Net, ViewBatch, net_changes, overlaid
from headrace.views.ledger import Ledger, Reflected
from headrace.views.ledgered import Ledgered
from headrace.views.parquet_files import ViewFolder
from headrace.views.parquet_manifest import Manifest, Part, merge_from
from headrace.views.schema import ViewSchema
from headrace.views.selecting import Condition, Order, Selection, select
from headrace.views.store import Change, Snapshot, require_view

__all__ = ["ParquetStore"]

_GRACE_MS = 10 * 60_000
_ATTEMPTS = 5


class ParquetStore(Ledgered):
    """A ViewStore of one folder a view. Keeps no changes for followers.

    Reading merges all files in memory and keeps the result until the view changes: it
    is for views that fit there, and for tools that read files. `grace_ms` is how long a
    file stays after the manifest stopped naming it.
    """

    def __init__(self, folder: str | Path, *, grace_ms: int = _GRACE_MS, clock: Clock | None = None) -> None:
        self.folder = Path(folder)
        self._grace_ms = grace_ms
        self._clock = clock or SystemClock()
        self._cached: dict[str, tuple[tuple[Part, ...], pa.Table]] = {}
        self._lock = threading.Lock()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"cannot keep views in {self.folder}: {error.strerror}; give a folder that can be written"
            ) from error

    def prepare(self, schema: ViewSchema) -> None:
        folder = self._folder(schema.name)
        with self._lock, folder.locked(make=True):
            manifest = folder.manifest()
            if manifest is None:
                folder.replace(Manifest(Ledger(schema=schema)))
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
            entry = manifest.ledger.enter(batch)
            if entry is None:
                return False
            reached("begun")
            schema = entry.ledger.schema
            new = folder.write(
                net_changes(schema, batch.changes, distinct=batch.distinct), manifest.number + 1
            )
            reached("rows written")
            parts = [*(() if entry.resets else manifest.parts), *([] if new is None else [new])]
            changed = 0 if batch.changes is None else batch.changes.num_rows
            ledger = entry.ledger.with_sequence(entry.ledger.sequence + changed)
            manifest = manifest.followed_by(ledger, parts, self._clock.now_ms())
            reached("ledger written")
            folder.replace(manifest)
            reached("committed")
            self._merge(folder, manifest)
            return True

    def snapshot(
        self,
        view: str,
        *,
        where: Iterable[Condition] = (),
        order: Iterable[Order] = (),
        limit: int | None = None,
        offset: int = 0,
    ) -> Snapshot:
        for _ in range(_ATTEMPTS):
            manifest = self._manifest(view)
            try:
                rows = self._rows(manifest)
            except FileNotFoundError:  # so slow that the files were removed: take the newer ones
                continue
            selection = Selection.of(manifest.ledger.schema, where, order, limit, offset)
            return Snapshot(select(rows, selection), manifest.ledger.reflected)
        raise RetriableError(
            f"view {view!r}: its files were replaced faster than they could be read; try again"
        )

    def changes(self, view: str, since: int = 0, limit: int = 1_000) -> list[Change]:
        del since, limit
        self._ledger(view)
        raise RequestError(
            "a Parquet store keeps no changes for followers; use SQLite, PostgreSQL or a topic for that"
        )

    def views(self) -> list[str]:
        return sorted(each.parent.name for each in self.folder.glob("*/manifest.json"))

    def drop(self, view: str) -> None:
        folder = self._folder(view)
        with self._lock, folder.locked():
            if folder.manifest() is not None:
                folder.destroy()
            self._cached.pop(view, None)

    def close(self) -> None:
        self._cached.clear()

    def _folder(self, view: str) -> ViewFolder:
        if "/" in view or view.startswith(".") or not view:
            raise RequestError(f"there is no view {view!r}")
        return ViewFolder(self.folder / view)

    def _manifest(self, view: str) -> Manifest:
        manifest = self._folder(view).manifest()
        require_view(manifest.ledger if manifest else None, view, self.views())
        assert manifest is not None
        return manifest

    def _ledger(self, view: str) -> Ledger:
        return self._manifest(view).ledger

    def _rows(self, manifest: Manifest) -> pa.Table:
        schema = manifest.ledger.schema
        cached = self._cached.get(schema.name)
        if cached is None or cached[0] != manifest.parts:
            folder = self._folder(schema.name)
            rows = _overlaid(folder, schema, manifest.parts).rows
            self._cached[schema.name] = cached = (manifest.parts, rows)
        return cached[1]

    def _merge(self, folder: ViewFolder, manifest: Manifest) -> None:
        """Merges small parts if it is time to, in a step of its own: the batch is safe already."""
        start = merge_from([part.count for part in manifest.parts])
        if start is not None:
            schema = manifest.ledger.schema
            net = _overlaid(folder, schema, manifest.parts[start:])
            if start == 0:  # nothing older could show through
                net = Net(net.rows, net.removed.slice(0, 0))
            merged = folder.write(net, manifest.number + 1)
            parts = [*manifest.parts[:start], *([] if merged is None else [merged])]
            manifest = manifest.followed_by(manifest.ledger, parts, self._clock.now_ms())
            folder.replace(manifest)
        self._remove_expired(folder, manifest)
        reached("tidied")

    def _tidy(self, folder: ViewFolder, manifest: Manifest) -> None:
        """Notes files that a crash left behind as garbage, and removes what is old enough."""
        strays = dict.fromkeys(folder.strays(manifest), self._clock.now_ms())
        if strays:
            manifest = Manifest(
                manifest.ledger, manifest.parts, manifest.number + 1, {**manifest.garbage, **strays}
            )
            folder.replace(manifest)
        self._remove_expired(folder, manifest)

    def _remove_expired(self, folder: ViewFolder, manifest: Manifest) -> None:
        expired = manifest.expired(self._clock.now_ms(), self._grace_ms)
        if expired:
            folder.remove(expired)
            folder.replace(manifest.without_garbage(expired))


def _overlaid(folder: ViewFolder, schema: ViewSchema, parts: Iterable[Part]) -> Net:
    nets = [folder.read(schema, part) for part in parts]
    if not nets:
        return Net(schema.columns.empty_table(), pa.schema(schema.key_fields()).empty_table())
    return overlaid(schema, nets)
