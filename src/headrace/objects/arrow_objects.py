"""Objects through `pyarrow.fs`: S3, GCS, Azure, HDFS, and folders of a disk.

Object stores show an object when it is complete. File systems show it while it is written, so there it
is written under another name and renamed. A reader still cannot distinguish every broken upload from a
whole object, so whatever is put must have its own checksum.
"""

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from urllib.parse import urlsplit

from pyarrow import fs

from headrace.errors import ConfigError, RetriableError
from headrace.objects.urls import require_supported

__all__ = ["ArrowObjects", "open_objects"]

_WITH_RENAME = ("file", "hdfs")
_ONE_REQUEST = "allow_delayed_open=true"  # for small objects; otherwise S3 is asked three times for each


def open_objects(url: str) -> "ArrowObjects":
    """The folder at a URL; nothing is created or asked yet. Raises ConfigError if it cannot be one."""
    require_supported("the URL", url)
    return _opened(url, os.getpid())


@lru_cache(maxsize=64)
def _opened(url: str, _pid: int) -> "ArrowObjects":  # the threads of a client do not survive a fork
    scheme = urlsplit(url).scheme
    uri = url
    if scheme == "s3":
        uri += ("&" if "?" in url else "?") + _ONE_REQUEST
    try:
        system, path = fs.FileSystem.from_uri(uri)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(f"{url} cannot be opened: {error}") from error
    return ArrowObjects(url, system, path.rstrip("/"), by_rename=scheme in _WITH_RENAME)


class ArrowObjects:
    """Those below one folder of a file system of Arrow's."""

    def __init__(self, url: str, system: fs.FileSystem, path: str, *, by_rename: bool) -> None:
        self.url = url
        self._system = system
        self._path = path
        self._by_rename = by_rename

    def put(self, name: str, parts: Sequence[bytes]) -> None:
        path = self._at(name)
        with self._explained("written", name):
            if not self._by_rename:
                self._write(path, parts)
                return
            folder, _, last = path.rpartition("/")
            self._system.create_dir(folder, recursive=True)
            beside = f"{folder}/.{last}.{secrets.token_hex(8)}"
            try:
                self._write(beside, parts)
                self._system.move(beside, path)
            except BaseException:
                self._remove(beside)  # a half would keep a full disk full
                raise

    def get(self, name: str) -> bytes | None:
        with self._explained("read", name):
            try:
                with self._system.open_input_stream(self._at(name)) as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def names(self, folder: str) -> list[str]:
        with self._explained("listed", folder):
            selected = fs.FileSelector(self._at(folder), recursive=True, allow_not_found=True)
            found = [each.path for each in self._system.get_file_info(selected) if each.is_file]
        names = [each.removeprefix(self._path).lstrip("/") for each in found]
        return sorted(name for name in names if not name.rpartition("/")[2].startswith("."))

    def missing(self, names: Sequence[str]) -> list[str]:
        """Those of these objects that are not there."""
        if not names:
            return []
        with self._explained("found", names[0]):
            found = self._system.get_file_info([self._at(name) for name in names])
        return [name for name, each in zip(names, found, strict=True) if not each.is_file]

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with self._explained("removed", name):
                self._remove(self._at(name))

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}" if name else self._path

    def _write(self, path: str, parts: Sequence[bytes]) -> None:
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        stream = self._system.open_output_stream(path)
        stream.write(whole)
        stream.close()  # not in a `with`: an object whose writing failed must not be completed

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._system.delete_file(path)

    @contextmanager
    def _explained(self, done: str, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RetriableError(f"{name} at {self.url} cannot be {done}: {error}") from error
