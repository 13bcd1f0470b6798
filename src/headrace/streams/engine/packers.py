"""The two ways rows leave the feed.

`FusedPacker`: nothing stands between the stream and its windows, so the source packs
them itself and Spark never sees a row. `RowPacker`: user columns come first, so the
rows go to Spark, and `pack_projected` packs what its projection made of them. What is
no row (marks, records that cannot be read) travels in the column `_aside`, untouched
by any projection.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.records import Places
from headrace.streams.engine.messages import (
    ALL_VIEWS,
    IN_SCHEMA,
    BlobKind,
    Message,
    decode_table,
    encode_table,
    to_batch,
)
from headrace.streams.engine.packing import Originals, ViewPacker, mark_messages
from headrace.streams.engine.plan import ROW_STAMPS, StreamPlan
from headrace.streams.engine.spill import SpillFiles
from headrace.streams.event_time import Mark
from headrace.streams.feed.stamping import Stamped
from headrace.streams.operators import DROPPED
from headrace.streams.operators.grouping import one_chunk
from headrace.streams.spec import rows_schema

__all__ = ["ASIDE", "FAILURES", "FusedPacker", "RowPacker", "failed_rows", "pack_projected", "view_column"]

ASIDE, FAILURES = "_aside", "_failures"
_RAW_KEY, _RAW_VALUE = "_late_key", "_late_value"


def view_column(number: int) -> str:
    """The column that holds a view's own columns as a struct; null where the view leaves a row out."""
    return f"_view{number}"


class FusedPacker:
    """Packs stamped rows in the source itself."""

    schema = IN_SCHEMA

    def __init__(self, plan: StreamPlan, spill: SpillFiles) -> None:
        self._plan = plan
        self._spill = spill
        self._views = [ViewPacker(number, view, plan.buckets) for number, view in enumerate(plan.views)]

    def pack(self, stamped: Stamped) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches([stamped.rows])
        originals = Originals(stamped.keys, stamped.values)
        for view, packer in zip(self._plan.views, self._views, strict=True):
            packed = packer.pack(rows.select([*view.columns, *ROW_STAMPS]), originals)
            yield to_batch(_sent(packed, self._spill))
        if stamped.dead is not None and stamped.dead.num_rows:
            yield to_batch(_sent([_dead(self._plan, stamped.dead)], self._spill))

    def finish(self, mark: Mark) -> Iterator[pa.RecordBatch]:
        messages = [*mark_messages(self._plan, mark)]
        for packer in self._views:
            messages.extend(packer.close(0))
        yield to_batch(messages)


class RowPacker:
    """Hands rows to Spark, with the original of each that is too late for some view."""

    def __init__(self, plan: StreamPlan) -> None:
        self._plan = plan
        carried = [pa.field(name, pa.binary()) for name in (_RAW_KEY, _RAW_VALUE, ASIDE)]
        self.schema = pa.schema([*rows_schema(plan.spec), *carried])

    def pack(self, stamped: Stamped) -> Iterator[pa.RecordBatch]:
        """The rows, and beside them what could not be read."""
        yield self.rows(stamped)
        if stamped.dead is not None and stamped.dead.num_rows:
            yield self._asides([_dead(self._plan, stamped.dead)])

    def rows(self, stamped: Stamped) -> pa.RecordBatch:
        """The rows as they are; the originals only of those that some view will drop."""
        rows = stamped.rows
        late = self._late(rows)
        found = {name: rows[name] for name in rows.schema.names}
        found[_RAW_KEY] = stamped.keys.where(late).column()
        found[_RAW_VALUE] = stamped.values.where(late).column()
        found[ASIDE] = pa.nulls(rows.num_rows, pa.binary())
        columns = [found[field.name].cast(field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def finish(self, mark: Mark) -> Iterator[pa.RecordBatch]:
        """The mark, for every bucket."""
        yield self._asides(mark_messages(self._plan, mark))

    def _late(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        late = np.zeros(rows.num_rows, np.bool_)
        for operator in self._plan.operators:
            late |= operator.classify(rows) == DROPPED
        return late

    def _asides(self, messages: Iterable[Message]) -> pa.RecordBatch:
        """Messages as rows without fields, each a whole Arrow batch of one message."""
        blobs = [encode_table(pa.Table.from_batches([to_batch([message])])) for message in messages]
        columns = [pa.nulls(len(blobs), field.type) for field in list(self.schema)[:-1]]
        return pa.RecordBatch.from_arrays([*columns, pa.array(blobs, pa.binary())], schema=self.schema)


def pack_projected(
    plan: StreamPlan, spill: SpillFiles, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What Spark's projection made of the rows, packed; the body of `mapInArrow`."""
    packers = [ViewPacker(number, view, plan.buckets) for number, view in enumerate(plan.views)]
    for batch in batches:
        yield from _pass_on(batch[ASIDE])
        table = pa.Table.from_batches([batch]).filter(pc.is_null(batch[ASIDE]))
        failures = failed_rows(table)
        for number, packer in enumerate(packers):
            failed = failures.get(str(number))
            yield to_batch(_sent(_pack_view(table, number, packer, failed), spill))
    yield to_batch(message for packer in packers for message in packer.close(0))


def _pack_view(
    table: pa.Table, number: int, packer: ViewPacker, failed: pa.Table | None
) -> Iterator[Message]:
    kept = table.filter(pc.is_valid(table[view_column(number)]))
    packer.counters["filtered"] += table.num_rows - kept.num_rows
    if failed is not None:
        packer.counters["filtered"] -= failed.num_rows
        packer.counters["dead"] += failed.num_rows
        yield Message(packer.bucket(failed), number, BlobKind.FAILED, encode_table(failed))
    structs = kept[view_column(number)].combine_chunks()
    columns = dict(zip([field.name for field in structs.type], structs.flatten(), strict=True))
    rows = pa.table({**columns, **{name: kept[name] for name in ROW_STAMPS}})
    originals = Originals(*(Places.of(one_chunk(kept[name])) for name in (_RAW_KEY, _RAW_VALUE)))
    yield from packer.pack(rows, originals)


def failed_rows(table: pa.Table) -> dict[str, pa.Table]:
    """By view, the rows for which a step raised: where they are from, which step, and the row as JSON."""
    if FAILURES not in table.column_names:
        return {}
    failed = table.filter(pc.is_valid(table[FAILURES]))
    found: dict[str, list[tuple[int, int, str]]] = {}
    for place, lines in enumerate(failed[FAILURES].to_pylist()):
        steps, _, row = lines.partition("\n")
        for view, step in json.loads(steps).items():
            found.setdefault(view, []).append((place, step, row))
    return {view: _of_view(failed, *zip(*each, strict=True)) for view, each in found.items()}


def _of_view(failed: pa.Table, places: Sequence[int], steps: Sequence[int], rows: Sequence[str]) -> pa.Table:
    names = [
        name for name in ("_partition", "_offset", "_event_time", "_weight") if name in failed.column_names
    ]
    own = failed.select(names).take(pa.array(places))
    return own.append_column("step", pa.array(steps, pa.int32())).append_column("row", pa.array(rows))


def _dead(plan: StreamPlan, dead: pa.Table) -> Message:
    bucket = int(dead["partition"][0].as_py()) % plan.buckets
    return Message(bucket, ALL_VIEWS, BlobKind.DEAD, encode_table(dead))


def _sent(messages: Iterable[Message], spill: SpillFiles) -> Iterator[Message]:
    for bucket, view, kind, blob in messages:
        yield Message(bucket, view, *spill.sent(kind, blob))


def _pass_on(asides: pa.Array) -> Iterator[pa.RecordBatch]:
    for blob in asides.drop_null():
        yield from decode_table(blob.as_buffer()).to_batches()
