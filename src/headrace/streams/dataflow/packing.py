"""Rows on their way into a graph: out of the feed, and out of Spark's projections.

Every row that a source gives is counted once on each edge that carries it: on time, dropped for
coming too late, or filtered where the edge's own conditions leave it out. Dropped records travel
whole, to the late topic.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.records import Places
from headrace.streams.dataflow.graph import Edge, Graph
from headrace.streams.dataflow.step import edge_messages, raw, raw_producer
from headrace.streams.engine.messages import (
    ALL_VIEWS,
    IN_SCHEMA,
    BlobKind,
    Message,
    decode_table,
    encode_json,
    encode_table,
    read_messages,
    to_batch,
)
from headrace.streams.engine.packers import failed_rows
from headrace.streams.engine.packing import Originals
from headrace.streams.engine.spill import SpillFiles
from headrace.streams.event_time import Mark
from headrace.streams.feed.stamping import Stamped
from headrace.streams.operators import STAMPS, WEIGHT
from headrace.streams.operators.grouping import one_chunk
from headrace.streams.operators.operator import DELETED, stamp_fields

__all__ = [
    "ASIDE",
    "BUCKET",
    "SourcePacker",
    "edge_column",
    "pack_edges",
    "producer_column",
    "unpack_rows",
    "wide_schema",
]

ASIDE, BUCKET = "_aside", "_bucket"
LATE_KEY, LATE_VALUE = "_late_key", "_late_value"

Bools = npt.NDArray[np.bool_]


def producer_column(producer: int) -> str:
    """The column that has a producer's rows as structs, where Spark projects them."""
    return f"_from{producer}"


def edge_column(number: int) -> str:
    """The column that has what an edge's steps made of them; null where they leave a row out."""
    return f"_edge{number}"


class SourcePacker:
    """Packs the rows of one source, in the source itself."""

    schema = IN_SCHEMA

    def __init__(self, graph: Graph, source: int, spill: SpillFiles) -> None:
        self._graph = graph
        self._source = source
        self._spill = spill
        numbers = graph.edges_of(source)
        self._plain = [_EdgePacker(graph, each) for each in numbers if not graph.edges[each].has_steps]
        self._stepped = [each for each in numbers if graph.edges[each].has_steps]

    def pack(self, stamped: Stamped) -> Iterator[pa.RecordBatch]:
        rows = _weighted(pa.Table.from_batches([stamped.rows]), self._graph.sources[self._source].schema)
        bucket = self._bucket(rows)
        originals = Originals(stamped.keys, stamped.values)
        messages: list[Message] = []
        if self._stepped and rows.num_rows:
            messages.append(self._raw(rows, originals, bucket))
        for packer in self._plain:
            messages.extend(packer.pack(rows, originals, bucket))
        if stamped.dead is not None and stamped.dead.num_rows:
            messages.append(Message(bucket, raw(self._source), BlobKind.DEAD, encode_table(stamped.dead)))
        yield to_batch(_sent(messages, self._spill))

    def finish(self, mark: Mark) -> Iterator[pa.RecordBatch]:
        blob = encode_json(mark.to_json())
        messages = [Message(each, ALL_VIEWS, BlobKind.MARK, blob) for each in range(self._graph.buckets)]
        for packer in self._plain:
            messages.extend(packer.close(0))
        yield to_batch(messages)

    def _raw(self, rows: pa.Table, originals: Originals, bucket: int) -> Message:
        """Rows for Spark's projections, with the originals of those that a reader would not take."""
        late = np.zeros(rows.num_rows, np.bool_)
        for number in self._stepped:
            found = _dropped(self._graph, number, rows)
            late |= False if found is None else found
        keys, values = originals.take(np.flatnonzero(late))
        places = pa.array(np.cumsum(late) - 1, mask=~late)
        rows = rows.append_column(LATE_KEY, keys.take(places)).append_column(LATE_VALUE, values.take(places))
        return Message(bucket, raw(self._source), BlobKind.ROWS, encode_table(rows))

    def _bucket(self, rows: pa.Table) -> int:
        """Where what belongs to no key goes: partitions are spread over the buckets."""
        return int(rows["_partition"][0].as_py()) % self._graph.buckets if rows.num_rows else 0


class _EdgePacker:
    """Packs the rows of one edge, and counts them if they come from a source."""

    def __init__(self, graph: Graph, number: int) -> None:
        self._graph = graph
        self._number = number
        self._is_counted = graph.edges[number].producer < len(graph.sources)
        self.counts: Counter[str] = Counter()

    def pack(self, rows: pa.Table, originals: Originals, bucket: int) -> Iterator[Message]:
        late = _dropped(self._graph, self._number, rows) if self._is_counted else None
        if late is not None and late.any():
            yield Message(bucket, self._number, BlobKind.LATE, encode_table(_late(rows, late, originals)))
            self.counts["dropped"] += int(late.sum())
            rows = rows.filter(pa.array(~late))
        self.counts["on_time"] += rows.num_rows
        if rows.num_rows:
            yield from edge_messages(self._graph, self._number, bucket, rows)

    def close(self, bucket: int) -> Iterator[Message]:
        """What was counted, once."""
        if self._is_counted and self.counts:
            yield Message(bucket, self._number, BlobKind.COUNTERS, encode_json(self.counts))
        self.counts = Counter()


def wide_schema(graph: Graph, producers: Iterable[int]) -> pa.Schema:
    """The columns of rows that Spark projects: each producer's as a struct, stamps, and what passes by."""
    return pa.schema(
        [
            *(pa.field(producer_column(each), pa.struct(list(graph.schema_of(each)))) for each in producers),
            *stamp_fields(),
            (BUCKET, pa.int32()),
            (LATE_KEY, pa.binary()),
            (LATE_VALUE, pa.binary()),
            (ASIDE, pa.binary()),
        ]
    )


def unpack_rows(
    schema: pa.Schema, spill: SpillFiles, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Messages as rows for Spark: raw ones spread out, all others whole, in the column that passes by."""
    for batch in batches:
        others: list[Message] = []
        for message in read_messages(batch):
            bucket, number, kind, blob = message
            producer = raw_producer(number)
            if producer is None or producer_column(producer) not in schema.names:
                others.append(message)
                continue
            kind, blob = spill.received(kind, blob)
            if kind is BlobKind.ROWS:
                yield from _spread(schema, producer, bucket, decode_table(blob))
            else:
                others.append(Message(bucket, number, kind, blob))
        if others:
            aside = encode_table(pa.Table.from_batches([to_batch(others)]))
            yield _filled(schema, {ASIDE: pa.array([aside], pa.binary())}, 1)


def pack_edges(
    graph: Graph, numbers: Iterable[int], spill: SpillFiles, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What Spark's projections made of the rows, packed for the reader of each edge."""
    packers = {number: _EdgePacker(graph, number) for number in numbers}
    for batch in batches:
        for blob in batch[ASIDE].drop_null():
            yield from decode_table(blob.as_buffer()).to_batches()
        table = pa.Table.from_batches([batch]).filter(pc.is_null(batch[ASIDE]))
        failures = failed_rows(table)
        for number, packer in packers.items():
            failed = failures.get(edge_column(number))
            yield to_batch(_sent(_pack_edge(graph, number, packer, table, failed), spill))
    yield to_batch(message for packer in packers.values() for message in packer.close(0))


def _pack_edge(
    graph: Graph, number: int, packer: _EdgePacker, table: pa.Table, failed: pa.Table | None
) -> Iterator[Message]:
    edge = graph.edges[number]
    if failed is not None:
        instead = "on_time" if edge.versions_by else "filtered"
        packer.counts.update({"dead": failed.num_rows, instead: -failed.num_rows})
        arrived = failed.filter(pc.field(WEIGHT) > 0)  # a row that goes was arrived of when it came
        if arrived.num_rows:
            yield Message(int(table[BUCKET][0].as_py()), number, BlobKind.FAILED, encode_table(arrived))
    offered = table.filter(pc.is_valid(one_chunk(table[producer_column(edge.producer)])))
    kept = offered if edge.versions_by else offered.filter(pc.is_valid(offered[edge_column(number)]))
    packer.counts["filtered"] += offered.num_rows - kept.num_rows
    if not kept.num_rows:
        return
    own = _versions(edge, number, kept) if edge.versions_by else _fields(kept, edge_column(number))
    rows = pa.table(
        {
            **{each.name: own[each.name].cast(each.type) for each in edge.schema},
            **{name: kept[name] for name in STAMPS},
        }
    )
    originals = Originals(*(Places.of(one_chunk(kept[name])) for name in (LATE_KEY, LATE_VALUE)))
    yield from packer.pack(rows, originals, int(kept[BUCKET][0].as_py()))


def _versions(edge: Edge, number: int, rows: pa.Table) -> dict[str, pa.Array]:
    """The columns of versions; of those that the steps left out the key, and that it is deleted."""
    left_out = pc.is_null(one_chunk(rows[edge_column(number)]))
    columns, before = _fields(rows, edge_column(number)), _fields(rows, producer_column(edge.producer))
    keys = {
        name: pc.if_else(left_out, before[old].cast(columns[name].type), columns[name])
        for name, old in edge.versions_by
    }
    return columns | keys | {DELETED: left_out}


def _fields(rows: pa.Table, name: str) -> dict[str, pa.Array]:
    """The fields of a column of structs; null where the struct is."""
    structs = one_chunk(rows[name])
    return dict(zip([each.name for each in structs.type], structs.flatten(), strict=True))


def _spread(schema: pa.Schema, producer: int, bucket: int, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    kind = schema.field(producer_column(producer)).type
    for batch in rows.combine_chunks().to_batches():
        own = [batch[field.name].cast(field.type) for field in kind]
        columns = {producer_column(producer): pa.StructArray.from_arrays(own, fields=list(kind))}
        columns |= {
            name: batch[name] for name in (*STAMPS, LATE_KEY, LATE_VALUE) if name in batch.schema.names
        }
        columns[BUCKET] = pa.repeat(pa.scalar(bucket, pa.int32()), batch.num_rows)
        yield _filled(schema, columns, batch.num_rows)


def _filled(schema: pa.Schema, columns: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    """A batch with these columns, and nulls in the others."""
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _weighted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The feed's rows with their own columns, the stamps, and a weight of one."""
    columns = {name: rows[name] for name in (*schema.names, *STAMPS) if name != WEIGHT}
    columns[WEIGHT] = pa.chunked_array([pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)])
    return pa.table(columns)


def _dropped(graph: Graph, number: int, rows: pa.Table) -> Bools | None:
    place, read = graph.consumer(number)
    return None if place >= len(graph.nodes) else graph.nodes[place].operator.dropped(read, rows)


def _late(rows: pa.Table, late: Bools, originals: Originals) -> pa.Table:
    numbers = np.flatnonzero(late)
    kept = rows.take(pa.array(numbers))
    keys, values = originals.take(numbers)
    stamps = {name: kept[name] for name in STAMPS if name != WEIGHT}
    return pa.table({**stamps, "key": keys, "value": values})


def _sent(messages: Iterable[Message], spill: SpillFiles) -> Iterator[Message]:
    for bucket, number, kind, blob in messages:
        yield Message(bucket, number, *spill.sent(kind, blob))
