"""The folder of one Parquet view: files written durably, one manifest that names them."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import CorruptionError, DiskError
from headrace.views.batch import Net
from headrace.views.parquet_manifest import Manifest, Part
from headrace.views.schema import ViewSchema

__all__ = ["ViewFolder"]

_MANIFEST = "manifest.json"


class ViewFolder:
    """Reads and writes a view's files; a manifest is replaced at once and for good.

    Writers hold `locked`; readers need nothing, and find every file that a manifest names
    for as long as it is not garbage of old.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def manifest(self) -> Manifest | None:
        """The newest; None where there is no view."""
        try:
            text = (self.path / _MANIFEST).read_text()
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return Manifest.loads(text)
        except CorruptionError as error:
            raise CorruptionError(str(error), path=self.path / _MANIFEST) from error

    @contextmanager
    def locked(self, *, make: bool = False) -> Iterator[None]:
        """Keeps other writers of the view out, in this process and in others."""
        with _explained(self.path):
            if make:
                self.path.mkdir(parents=True, exist_ok=True)
            if not self.path.is_dir():
                yield
                return
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                yield
            finally:
                os.close(handle)

    def write(self, net: Net, number: int) -> Part | None:
        """Files for a batch, synced; None if it has nothing in it."""
        if net.empty:
            return None
        rows = removed = None
        name = f"{number:010}-{secrets.token_hex(4)}.parquet"  # never one that was used before
        with _explained(self.path):
            if net.rows.num_rows:
                rows = self._write(net.rows, f"rows-{name}")
            if net.removed.num_rows:
                removed = self._write(net.removed, f"removed-{name}")
        return Part(rows, removed, net.rows.num_rows + net.removed.num_rows)

    def read(self, schema: ViewSchema, part: Part) -> Net:
        """The batch that was written; raises FileNotFoundError if the part is of old and gone."""
        keys = pa.schema(schema.key_fields())
        return Net(self._read(part.rows, schema.columns), self._read(part.removed, keys))

    def replace(self, manifest: Manifest) -> None:
        """Makes this the manifest: after it the view is the new one, whatever happens."""
        with _explained(self.path):
            new = self.path / f"{_MANIFEST}.new"
            with new.open("w") as file:
                file.write(manifest.dumps())
                file.flush()
                os.fsync(file.fileno())
            self._sync_folder()  # the files that it names, before it names them
            new.replace(self.path / _MANIFEST)
            self._sync_folder()

    def remove(self, names: list[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def strays(self, manifest: Manifest) -> list[str]:
        """Files that no manifest names: a writer died before it could."""
        named = {name for part in manifest.parts for name in part.files()} | manifest.garbage.keys()
        return [each.name for each in self.path.glob("*.parquet") if each.name not in named]

    def destroy(self) -> None:
        """Removes the view: first the manifest, so that nobody finds half of it."""
        with _explained(self.path):
            (self.path / _MANIFEST).unlink(missing_ok=True)
            self._sync_folder()
            for each in self.path.iterdir():
                each.unlink()
            self.path.rmdir()

    def _write(self, table: pa.Table, name: str) -> str:
        path = self.path / name
        try:
            with path.open("wb") as file:
                pq.write_table(table, file, compression="zstd", compression_level=1)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            path.unlink(missing_ok=True)  # a half would keep a full disk full
            raise
        return name

    def _read(self, name: str | None, columns: pa.Schema) -> pa.Table:
        if name is None:
            return columns.empty_table()
        try:
            return pq.read_table(self.path / name, partitioning=None).cast(columns)
        except pa.ArrowInvalid as error:
            raise CorruptionError(
                f"not the Parquet file that was written: {error}", path=self.path / name
            ) from error

    def _sync_folder(self) -> None:
        handle = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DiskError.at(path, error) from error
