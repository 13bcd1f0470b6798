"""A table as it was: rows of its history at a moment, or at a position of its topic.

The history of a table is a view too: a row for each version, with the spans in which it counted
(`headrace.streams.operators.tables.history`). What was there at a moment is found by conditions on
these spans, in every store alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import RequestError
from headrace.views.ledger import Reflected
from headrace.views.schema import ViewSchema
from headrace.views.selection import Condition, Order, Selection, select
from headrace.views.store import Snapshot, ViewStore

__all__ = ["HISTORY", "AsOf", "history_view", "parse_as_of", "read_as_of"]

HISTORY = ".history"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ATTEMPTS = 5


def history_view(table: str) -> str:
    """The name of the view that has the versions of a served table."""
    return f"{table}{HISTORY}"


@dataclass(frozen=True, slots=True)
class AsOf:
    """A moment, or the next offsets of a topic's partitions; others are read to their end."""

    time: datetime | None = None
    offsets: Mapping[int, int] = field(default_factory=dict)


def parse_as_of(text: str) -> AsOf:
    """A time such as 2026-01-31T12:00:00Z, or offsets such as 0:1200,1:1187; raises RequestError."""
    pairs = [each.partition(":") for each in text.strip().split(",")]
    if all(one.strip().isdecimal() and other.strip().isdecimal() for one, _, other in pairs):
        return AsOf(offsets={int(one): int(other) for one, _, other in pairs})
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise RequestError(
            f"{text[:60]!r} is neither a time such as 2026-01-31T12:00:00Z nor offsets such as 0:1200,1:1187"
        ) from None
    return AsOf(time=moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


def read_as_of(
    store: ViewStore,
    table: str,
    as_of: AsOf,
    *,
    keep_us: int,
    where: Sequence[Condition] = (),
    order: Sequence[Order] = (),
    limit: int | None = None,
) -> Snapshot:
    """The rows of a served table as they were, in the given order and then by key.

    `keep_us` is its history. Raises RequestError for a moment before it, or a position that has not
    been read yet. What is reflected is what the history reflects now.
    """
    name = history_view(table)
    schema = store.schema(table)
    for _ in range(_ATTEMPTS):
        reflected = store.reflected(name)
        _require_within(store, name, as_of, reflected, keep_us)
        parts = [
            store.snapshot(name, where=[*where, *each], order=order, limit=limit if as_of.time else None)
            for each in _conditions(as_of, reflected)
        ]
        if all(part.reflected == reflected for part in parts):
            rows = _one_of_each(schema, pa.concat_tables([part.rows for part in parts]))
            return Snapshot(select(rows, Selection.of(schema, (), order, limit)), reflected)
    raise RequestError(f"table {table!r} changed faster than it could be read; try again")


def _conditions(as_of: AsOf, reflected: Reflected) -> list[list[Condition]]:
    """What versions must meet, one set for each part of the answer."""
    if as_of.time is not None:
        spans = [Condition("_valid_from", "<=", as_of.time), Condition("_valid_to", ">", as_of.time)]
        return [[*spans, Condition("_deleted", "=", False)]]
    return [
        [
            Condition("_in_partition", "=", partition),
            Condition("_from_offset", "<", following),
            Condition("_to_offset", ">=", following),
        ]
        for partition, following in sorted({**_read_to(reflected), **as_of.offsets}.items())
    ]


def _read_to(reflected: Reflected) -> dict[int, int]:
    found: dict[int, int] = {}
    for partitions in reflected.offsets.values():
        found.update(partitions)
    return found


def _require_within(store: ViewStore, name: str, as_of: AsOf, reflected: Reflected, keep_us: int) -> None:
    """Raises RequestError if versions that counted then may be gone, or have not been read."""
    if reflected.watermark_us is None:
        return
    horizon = _EPOCH + timedelta(microseconds=reflected.watermark_us - keep_us)
    if as_of.time is not None:
        if as_of.time < horizon:
            raise RequestError(
                f"the history of {name.removesuffix(HISTORY)!r} goes back to {horizon.isoformat()}, not to "
                f"{as_of.time.isoformat()}; declare a longer history= and rebuild the application"
            )
        return
    read_to = _read_to(reflected)
    for partition, following in as_of.offsets.items():
        if following > read_to.get(partition, 0):
            raise RequestError(
                f"partition {partition} has been read up to offset {read_to.get(partition, 0)}, "
                f"not to {following}; try again later"
            )
        if following < read_to[partition] and _known_at(store, name, partition, following) < horizon:
            raise RequestError(
                f"offset {following} of partition {partition} is before the history of "
                f"{name.removesuffix(HISTORY)!r}, which goes back to {horizon.isoformat()}"
            )


def _known_at(store: ViewStore, name: str, partition: int, following: int) -> datetime:
    """The watermark of a partition at an offset, as far as the versions that are left tell."""
    before = [
        Condition("_in_partition", "=", partition),
        Condition("_from_offset", "<", following),
    ]
    rows = store.read(name, where=before, order=[Order("_known_at", descending=True)], limit=1)
    found = rows["_known_at"].to_pylist()
    return found[0] if found else datetime.min.replace(tzinfo=UTC)


def _one_of_each(schema: ViewSchema, versions: pa.Table) -> pa.Table:
    """Of the versions of one key in several partitions the one that is valid from the latest time."""
    newest_first = [("_valid_from", "descending"), ("_in_partition", "descending")]
    versions = versions.sort_by(newest_first)
    numbered = versions.append_column("\0row", pa.array(range(versions.num_rows), pa.int64()))
    first = numbered.group_by(list(schema.key), use_threads=False).aggregate([("\0row", "min")])
    versions = versions.take(first["\0row_min"]) if first.num_rows < versions.num_rows else versions
    there = versions.filter(pc.invert(versions["_deleted"]))
    return there.select(schema.columns.names).cast(schema.columns)
