"""The columns of captured tables: a query stops before rows that it would misread.

A capture writes the columns of a table to its schema topic before the first row that has them, in the same
transaction (`docs/guides/capture.md`). A query knows the columns that the table had when the application read
them. A new column makes no difference to it; one that is gone, or has another name or type, would be null, or
read as something else.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headrace.client import EARLIEST, LATEST, Connection, RawFetcher
from headrace.errors import RequestError
from headrace.records import decode_columns
from headrace.streams.spec import CapturedColumns, StreamSpec, value_fields

__all__ = ["ColumnReader", "column_readers", "why_other"]

_TEXTS = ("char", "text", "clob", "enum")
_BYTES = ("binary", "blob")


def why_other(known: CapturedColumns, said: Mapping[str, Any]) -> str:
    """Why rows cannot be read as before, now that the schema topic says this; nothing if they can."""
    now = {str(each["name"]): str(each["type"]) for each in said["columns"]}
    gone = [name for name, _ in known.columns if name not in now]
    new = [name for name in now if name not in dict(known.columns)]
    if gone:
        instead = f", and new: {', '.join(new)}" if new else ""
        return f"has no column {', '.join(gone)} any longer (renamed or dropped{instead})"
    for name, before in known.columns:
        if _kind(before) != _kind(now[name]):
            return f"has another type in column {name}: {now[name]}, which was {before}"
    if tuple(said["key"]) != known.key:
        return f"has the key ({', '.join(said['key'])}), which was ({', '.join(known.key)})"
    return ""


def _kind(declared: str) -> str:
    """What decides how values of a type are written: of text and bytes, their length does not matter."""
    lower = declared.lower()
    name = lower.partition("(")[0].strip()
    if any(each in name for each in _TEXTS):
        return "text"
    return name if any(each in name for each in _BYTES) else lower


def column_readers(specs: Iterable[StreamSpec], connection: Connection) -> list["ColumnReader"]:
    """A reader for each schema topic of these streams."""
    by_topic: dict[str, list[CapturedColumns]] = {}
    for spec in specs:
        if spec.captured is not None:
            names = value_fields(spec).names
            read = tuple(each for each in spec.captured.columns if each[0] in names)
            by_topic.setdefault(spec.captured.topic, []).append(replace(spec.captured, columns=read))
    return [ColumnReader(RawFetcher(connection), known) for known in by_topic.values()]


class ColumnReader:
    """Follows one schema topic for the tables of a query; for one thread."""

    def __init__(self, fetcher: RawFetcher, known: Sequence[CapturedColumns]) -> None:
        self._fetcher = fetcher
        self._topic = known[0].topic
        self._known = {each.table: each for each in known}
        self._next: int | None = None

    def is_settled(self) -> bool:
        """Whether everything on the topic is committed; RequestError if a table has become another.

        While it is not, rows behind a change of columns may be visible already.
        """
        end = self._fetcher.offsets(self._topic, LATEST, committed=False)[0]
        if end == self._next:
            return True
        committed = self._fetcher.offsets(self._topic, LATEST)[0]
        start = self._next if self._next is not None else self._fetcher.offsets(self._topic, EARLIEST)[0]
        for run in self._fetcher.fetch(self._topic, 0, start, committed):
            found = decode_columns(
                run, start_offset=start, end_offset=committed, columns=("timestamp", "key", "value")
            )
            at_ms = found["timestamp"].cast(pa.int64()).to_pylist()
            self._check(zip(at_ms, found["key"].to_pylist(), found["value"].to_pylist(), strict=True))
        self._next = committed
        return committed >= end

    def _check(self, records: Iterable[tuple[int, bytes | None, bytes | None]]) -> None:
        for at_ms, key, value in records:
            known = self._known.get((key or b"").decode())
            if known is None or value is None or at_ms < known.read_ms:
                continue
            if reason := why_other(known, json.loads(value)):
                raise RequestError(
                    f"table {known.table} {reason}. Change what the application says of it, if need be, and "
                    "start it again with --rebuild: it takes the columns as they are now"
                )

    def close(self) -> None:
        """Closes the connections."""
        self._fetcher.close()
