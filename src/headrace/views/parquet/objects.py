"""One Parquet view in an object store, where nothing can be renamed and no lock keeps a second writer off.

```text
VIEW/rows-….parquet, VIEW/removed-….parquet     named at random, and never replaced
VIEW/manifests/EPOCH.NUMBER                     every version is an object of its own
```

The current version is that of the highest number in the highest epoch. An epoch belongs to one run of
the application (`headrace.app.run.ownership`), and a run reads the current version after it has taken
over: what the run before it still writes, under a lower epoch, counts until the new run writes its first
version, and never again. Decision 22 says why no batch is lost or applied twice by that.
"""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from crc32c import crc32c

from headrace.errors import CorruptionError, FencedError
from headrace.objects import ArrowObjects, open_objects
from headrace.views.batch import NetChanges
from headrace.views.parquet.manifest import REMEDY, Part, ViewManifest
from headrace.views.parquet.view_files import decoded, encoded
from headrace.views.schema import ViewSchema

__all__ = ["MANIFESTS", "ViewObjects", "epoch_of"]

MANIFESTS = "manifests"
_KEPT = 3  # versions, for readers who have just listed them
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class ViewObjects:
    """The files of a view below a URL; `epoch` is that of the run which writes."""

    url: str
    view: str
    epoch: int = 0

    def manifest(self) -> ViewManifest | None:
        for _ in range(_ATTEMPTS):
            names = self._versions()
            if not names:
                return None
            data = self._objects.get(names[-1])
            if data is not None:
                return self._read_manifest(data, names[-1])
        raise CorruptionError(f"view {self.view!r} at {self.url}: its manifests vanish; {REMEDY}")

    @contextmanager
    def locked(self, *, make: bool = False) -> Iterator[None]:
        """Nobody needs to be kept off: who has been replaced writes under a lower epoch."""
        del make
        yield

    def require_reachable(self) -> None:
        """Whoever cannot reach the store is told when it writes."""

    def write(self, net: NetChanges, number: int) -> Part | None:
        if net.empty:
            return None
        rows = removed = None
        checks: dict[str, int] = {}
        name = f"{number:010}-{secrets.token_hex(8)}.parquet"
        if net.rows.num_rows:
            rows = self._write(net.rows, f"rows-{name}", checks)
        if net.removed.num_rows:
            removed = self._write(net.removed, f"removed-{name}", checks)
        return Part(rows, removed, net.rows.num_rows + net.removed.num_rows, checks)

    def missing(self, parts: Sequence[Part]) -> list[str]:
        """Those that an executor has put elsewhere: its endpoint may be another."""
        return self._objects.missing([f"{self.view}/{name}" for part in parts for name in part.files()])

    def read(self, schema: ViewSchema, part: Part) -> NetChanges:
        keys = pa.schema(schema.key_fields())
        return NetChanges(self._read(part.rows, schema.columns, part), self._read(part.removed, keys, part))

    def replace(self, manifest: ViewManifest) -> None:
        names = self._versions()
        if names and epoch_of(names[-1]) > self.epoch:
            raise FencedError(
                f"view {self.view!r} at {self.url} is written by a newer run of its application, so this one "
                "stops"
            )
        self._objects.put(f"{self._folder}{self.epoch:08}.{manifest.number:012}", [manifest.dumps()])
        self._objects.remove(names[: max(0, len(names) + 1 - _KEPT)])

    def remove(self, names: list[str]) -> None:
        self._objects.remove([f"{self.view}/{name}" for name in names])

    def orphans(self, manifest: ViewManifest) -> list[str]:
        named = {name for part in manifest.parts for name in part.files()} | manifest.garbage.keys()
        files = [name.removeprefix(f"{self.view}/") for name in self._objects.names(self.view)]
        return [name for name in files if name.endswith(".parquet") and name not in named]

    def destroy(self) -> None:
        self._objects.remove(reversed(self._versions()))
        self._objects.remove(self._objects.names(self.view))

    @property
    def _objects(self) -> ArrowObjects:
        return open_objects(self.url)

    @property
    def _folder(self) -> str:
        return f"{self.view}/{MANIFESTS}/"

    def _versions(self) -> list[str]:
        """The names of the manifests, the current one last."""
        return self._objects.names(f"{self.view}/{MANIFESTS}")

    def _read_manifest(self, data: bytes, name: str) -> ViewManifest:
        try:
            return ViewManifest.loads(data)
        except CorruptionError as error:
            raise CorruptionError(f"{name} at {self.url}: {error}") from error

    def _write(self, table: pa.Table, name: str, checks: dict[str, int]) -> str:
        data = encoded(table)
        checks[name] = crc32c(data)
        self._objects.put(f"{self.view}/{name}", [data.to_pybytes()])
        return name

    def _read(self, name: str | None, columns: pa.Schema, part: Part) -> pa.Table:
        if name is None:
            return columns.empty_table()
        data = self._objects.get(f"{self.view}/{name}")
        if data is None:
            raise FileNotFoundError(name)
        try:
            return decoded(data, name, columns, part.crc32c)
        except (ValueError, OSError, pa.ArrowException) as error:
            raise CorruptionError(
                f"{self.view}/{name} at {self.url} is not what was written: {error}; {REMEDY}"
            ) from error


def epoch_of(name: str) -> int:
    """The epoch under which a manifest was written."""
    return int(name.rpartition("/")[2].partition(".")[0])
