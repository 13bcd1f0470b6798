"""The two ways rows leave the feed.

`FusedPacker`: nothing stands between the stream and its windows, so the source packs
them itself and Spark never sees a row. `RowPacker`: user columns come first, so the
rows go to Spark, and `pack_projected` packs what its projection made of them. What is
no row (marks, records that cannot be read) travels in the column `_aside`, untouched
by any projection.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.records.columns import Places
from headrace.streams.engine.messages import (
    ALL_VIEWS,
    IN_SCHEMA,
    Kind,
    Message,
    read_table,
    to_batch,
    write_table,
)
from headrace.streams.engine.pack import Originals, ViewPacker, mark_messages
from headrace.streams.engine.parcels import Parcels
from headrace.streams.engine.plan import RESERVED, StreamPlan
from headrace.streams.event_time import Mark
from headrace.streams.operators import DROPPED
from headrace.streams.operators.grouping import one_chunk
from headrace.streams.spec import rows_schema
from headrace.streams.stamping import Stamped

__all__ = ["ASIDE", "FusedPacker", "RowPacker", "pack_projected", "view_column"]

ASIDE = "_aside"
_RAW_KEY, _RAW_VALUE = "_late_key", "_late_value"


def view_column(number: int) -> str:
    """The column that holds a view's own columns as a struct; null where the view leaves a row out."""
    return f"_view{number}"


class FusedPacker:
    """Packs stamped rows in the source itself."""

    schema = IN_SCHEMA

    def __init__(self, plan: StreamPlan, parcels: Parcels) -> None:
        self._plan = plan
        self._parcels = parcels
        self._views = [ViewPacker(number, view, plan.buckets) for number, view in enumerate(plan.views)]

    def pack(self, stamped: Stamped) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches([stamped.rows])
        originals = Originals(stamped.keys, stamped.values)
        for view, packer in zip(self._plan.views, self._views, strict=True):
            packed = packer.pack(rows.select([*view.columns, *RESERVED]), originals)
            yield to_batch(_sent(packed, self._parcels))
        if stamped.dead is not None and stamped.dead.num_rows:
            dead = Message(0, ALL_VIEWS, Kind.DEAD, write_table(stamped.dead))
            yield to_batch(_sent([dead], self._parcels))

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
            yield self._asides([Message(0, ALL_VIEWS, Kind.DEAD, write_table(stamped.dead))])

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
        blobs = [write_table(pa.Table.from_batches([to_batch([message])])) for message in messages]
        columns = [pa.nulls(len(blobs), field.type) for field in list(self.schema)[:-1]]
        return pa.RecordBatch.from_arrays([*columns, pa.array(blobs, pa.binary())], schema=self.schema)


def pack_projected(
    plan: StreamPlan, parcels: Parcels, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What Spark's projection made of the rows, packed; the body of `mapInArrow`."""
    packers = [ViewPacker(number, view, plan.buckets) for number, view in enumerate(plan.views)]
    for batch in batches:
        yield from _pass_on(batch[ASIDE])
        table = pa.Table.from_batches([batch]).filter(pc.is_null(batch[ASIDE]))
        for number, packer in enumerate(packers):
            yield to_batch(_sent(_pack_view(table, number, packer), parcels))
    yield to_batch(message for packer in packers for message in packer.close(0))


def _pack_view(table: pa.Table, number: int, packer: ViewPacker) -> Iterator[Message]:
    own = table[view_column(number)].combine_chunks()
    kept = table.filter(pc.is_valid(own))
    packer.books["filtered"] += table.num_rows - kept.num_rows
    structs = kept[view_column(number)].combine_chunks()
    columns = dict(zip([field.name for field in structs.type], structs.flatten(), strict=True))
    rows = pa.table({**columns, **{name: kept[name] for name in RESERVED}})
    originals = Originals(*(Places.of(one_chunk(kept[name])) for name in (_RAW_KEY, _RAW_VALUE)))
    return packer.pack(rows, originals)


def _sent(messages: Iterable[Message], parcels: Parcels) -> Iterator[Message]:
    for bucket, view, kind, blob in messages:
        yield Message(bucket, view, *parcels.sent(kind, blob))


def _pass_on(asides: pa.Array) -> Iterator[pa.RecordBatch]:
    for blob in asides.drop_null():
        yield from read_table(blob.as_buffer()).to_batches()
