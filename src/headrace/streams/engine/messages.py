"""What flows between the parts of a query: rows of (bucket, view, kind, blob).

`view` is the view's number in its plan, -1 where a message concerns all of them. A
blob is an Arrow stream or JSON, by kind.
"""

import enum
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

__all__ = [
    "ALL_VIEWS",
    "IN_SCHEMA",
    "OUT_SCHEMA",
    "BlobKind",
    "Message",
    "Outgoing",
    "decode_json",
    "decode_table",
    "encode_json",
    "encode_table",
    "read_messages",
    "read_outgoing",
    "to_batch",
    "to_outgoing",
]

ALL_VIEWS = -1
IN_SCHEMA = "bucket int, view int, kind int, blob binary"
OUT_SCHEMA = "view int, kind int, blob binary"

_ARROW = pa.schema(
    [("bucket", pa.int32()), ("view", pa.int32()), ("kind", pa.int32()), ("blob", pa.binary())]
)

_ARROW_OUT = pa.schema(list(_ARROW)[1:])

Outgoing = tuple[int, "BlobKind", bytes]  # view, kind, blob


class BlobKind(enum.IntEnum):
    """What a blob holds."""

    PARTIAL = 0  # partial results of one bucket, an Arrow stream
    MARK = 1  # how far a partition was read, JSON
    ROWS = 2  # rows of a view without windows, an Arrow stream
    LATE = 3  # records that were dropped, an Arrow stream
    DEAD = 4  # records that could not be read, an Arrow stream
    COUNTERS = 5  # what was counted, JSON
    CHANGES = 6  # changes of a view, an Arrow stream
    FORGOTTEN = 7  # partial results whose window's state was gone, an Arrow stream
    UNFIT = 9  # results that do not fit their type, an Arrow stream
    FAILED = 10  # rows for which a view's step raised, an Arrow stream
    CLOCK = 11  # the event-time watermarks that a dataflow has reached, by topic, JSON
    STATE = 12  # the token of the entry that a bucket's state was put as, by stage and bucket, JSON
    STAGED = 13  # where a task has put changes of a view, JSON
    SPILLED = 8  # a message of another kind, whose blob is in a file, JSON


class Message(NamedTuple):
    """One row of the shuffle."""

    bucket: int
    view: int
    kind: BlobKind
    blob: bytes


def to_batch(messages: Iterable[Message]) -> pa.RecordBatch:
    """Messages as the Arrow batch that Spark carries to the stage."""
    return _batch(messages, _ARROW)


def to_outgoing(messages: Iterable[Outgoing]) -> pa.RecordBatch:
    """What comes of a bucket, as the Arrow batch that Spark carries to the sink."""
    return _batch(messages, _ARROW_OUT)


def read_messages(batch: pa.RecordBatch) -> Iterator[Message]:
    """The messages of what `to_batch` made."""
    for bucket, view, kind, blob in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        yield Message(bucket, view, BlobKind(kind), blob)


def read_outgoing(messages: pa.Table) -> Iterator[Outgoing]:
    """The messages of what `to_outgoing` made."""
    for view, kind, blob in zip(*(column.to_pylist() for column in messages.columns), strict=True):
        yield view, BlobKind(kind), blob


def _batch(messages: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = list(zip(*messages, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def encode_table(table: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def decode_table(blob: bytes | pa.Buffer) -> pa.Table:
    """What `encode_table` wrote; it shares the blob's memory."""
    with pa.ipc.open_stream(blob) as reader:
        return reader.read_all()


def encode_json(fields: Mapping[str, Any]) -> bytes:
    """The same bytes for the same fields, whatever their order."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def decode_json(blob: bytes) -> dict[str, Any]:
    """What `encode_json` wrote."""
    fields: dict[str, Any] = json.loads(blob)
    return fields
