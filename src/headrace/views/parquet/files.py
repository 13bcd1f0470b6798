"""The folder of one Parquet view: files written durably, and the manifest that lists them."""

import fcntl
import os
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from crc32c import crc32c

from headrace.errors import ConfigError, CorruptionError, DiskError
from headrace.views.batch import NetChanges
from headrace.views.parquet.manifest import REMEDY, Part, ViewManifest
from headrace.views.parquet.view_files import decoded, encoded
from headrace.views.schema import ViewSchema

__all__ = ["ViewFolder"]

_MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class ViewFolder:
    """The files of a view in a folder of a disk; the manifest is replaced atomically and durably."""

    path: Path

    def manifest(self) -> ViewManifest | None:
        """The current one; None if there is no view."""
        try:
            text = (self.path / _MANIFEST).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return ViewManifest.loads(text)
        except CorruptionError as error:
            raise CorruptionError(str(error), path=self.path / _MANIFEST) from error

    @contextmanager
    def locked(self, *, make: bool = False) -> Iterator[None]:
        """Excludes other writers of the view, in this process and in others."""
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

    def require_reachable(self) -> None:
        if not self.path.is_dir():
            raise ConfigError(
                f"{socket.gethostname()} has no folder {self.path}: keep Parquet views in a folder that "
                "all executors share with the driver, mounted at the same path"
            )

    def write(self, net: NetChanges, number: int) -> Part | None:
        """Writes a batch to files and syncs them; None if it is empty."""
        if net.empty:
            return None
        rows = removed = None
        checks: dict[str, int] = {}
        name = f"{number:010}-{secrets.token_hex(4)}.parquet"  # never reused
        with _explained(self.path):
            if net.rows.num_rows:
                rows = self._write(net.rows, f"rows-{name}", checks)
            if net.removed.num_rows:
                removed = self._write(net.removed, f"removed-{name}", checks)
        return Part(rows, removed, net.rows.num_rows + net.removed.num_rows, checks)

    def missing(self, parts: Sequence[Part]) -> list[str]:
        """Files that a part has and the folder does not."""
        return [name for part in parts for name in part.files() if not (self.path / name).is_file()]

    def read(self, schema: ViewSchema, part: Part) -> NetChanges:
        """Reads a batch; raises FileNotFoundError if the part is outdated and has been removed."""
        keys = pa.schema(schema.key_fields())
        return NetChanges(
            self._read(part.rows, schema.columns, part.crc32c), self._read(part.removed, keys, part.crc32c)
        )

    def replace(self, manifest: ViewManifest) -> None:
        """Makes this the current manifest: when it returns, the new version is durable."""
        with _explained(self.path):
            new = self.path / f"{_MANIFEST}.new"
            with new.open("wb") as file:
                file.write(manifest.dumps())
                file.flush()
                os.fsync(file.fileno())
            self._sync_folder()  # the files that it lists, before it lists them
            new.replace(self.path / _MANIFEST)
            self._sync_folder()

    def remove(self, names: list[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def orphans(self, manifest: ViewManifest) -> list[str]:
        """Files that no manifest lists, because a writer died before that."""
        named = {name for part in manifest.parts for name in part.files()} | manifest.garbage.keys()
        return [each.name for each in self.path.glob("*.parquet") if each.name not in named]

    def destroy(self) -> None:
        """Removes the view, the manifest first, so that nobody finds half of it."""
        with _explained(self.path):
            (self.path / _MANIFEST).unlink(missing_ok=True)
            self._sync_folder()
            for each in self.path.iterdir():
                each.unlink()
            self.path.rmdir()

    def _write(self, table: pa.Table, name: str, checks: dict[str, int]) -> str:
        path, data = self.path / name, encoded(table)
        checks[name] = crc32c(data)
        try:
            with path.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            path.unlink(missing_ok=True)  # half a file would keep a full disk full
            raise
        return name

    def _read(self, name: str | None, columns: pa.Schema, checks: Mapping[str, int]) -> pa.Table:
        if name is None:
            return columns.empty_table()
        data = (self.path / name).read_bytes()
        try:
            return decoded(data, name, columns, checks)
        except (ValueError, OSError, pa.ArrowException) as error:
            raise CorruptionError(
                f"not the Parquet file that was written: {error}; {REMEDY}", path=self.path / name
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
