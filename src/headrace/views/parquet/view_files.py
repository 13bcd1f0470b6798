"""What a place for the files of one Parquet view promises, and what both places share."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from headrace.views.batch import NetChanges
from headrace.views.parquet.manifest import Part, ViewManifest
from headrace.views.schema import ViewSchema

__all__ = ["ViewFiles", "decoded", "encoded"]


class ViewFiles(Protocol):
    """The files of one view, and the manifest that lists them; plain data, which tasks are sent.

    Writers hold `locked`; readers need no lock, and find every file that their manifest lists until it has
    been garbage for long enough.
    """

    def manifest(self) -> ViewManifest | None:
        """The current one; None if there is no view."""
        ...

    def locked(self, *, make: bool = False) -> AbstractContextManager[None]:
        """Excludes other writers of the view."""
        ...

    def require_reachable(self) -> None:
        """Raises ConfigError if this machine does not have the place."""
        ...

    def write(self, net: NetChanges, number: int) -> Part | None:
        """Writes a batch to files, durably; None if it is empty."""
        ...

    def missing(self, parts: Sequence[Part]) -> list[str]:
        """Files that a part has and the place does not."""
        ...

    def read(self, schema: ViewSchema, part: Part) -> NetChanges:
        """Reads a batch; raises FileNotFoundError if the part is outdated and has been removed."""
        ...

    def replace(self, manifest: ViewManifest) -> None:
        """Makes this the current manifest: when it returns, the new version is durable."""
        ...

    def remove(self, names: list[str]) -> None: ...

    def orphans(self, manifest: ViewManifest) -> list[str]:
        """Files that no manifest lists, because a writer died before that."""
        ...

    def destroy(self) -> None:
        """Removes the view, so that nobody finds half of it."""
        ...


def encoded(table: pa.Table) -> pa.Buffer:
    """The bytes of a file with these rows."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=1)
    return sink.getvalue()


def decoded(data: bytes, name: str, columns: pa.Schema, checks: Mapping[str, int]) -> pa.Table:
    """The rows of a file; raises ValueError, OSError or ArrowException if it is not what was written."""
    if checks.get(name) not in (None, crc32c(data)):
        raise ValueError("its checksum does not hold")
    return pq.read_table(pa.BufferReader(data)).cast(columns)
