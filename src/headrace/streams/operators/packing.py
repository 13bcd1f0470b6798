"""Partials on their way to the buckets of keys that hold the state."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.column_hash import hash_columns
from headrace.streams.operators.grouping import runs_of
from headrace.streams.operators.keys import HASH, hashes_of, key_columns

__all__ = ["buckets", "pack_buckets", "unpack"]


def buckets(table: pa.Table, keys: Sequence[str], count: int) -> npt.NDArray[np.int32]:
    """The bucket of each row's key, 0 to `count` - 1: the same in every process and version.

    Equal keys have the same bucket (nulls, NaNs and both zeros count as equal), and an
    integer has it whatever its width. A partial brings its hashes with it.
    """
    if HASH in table.column_names:
        hashes = hashes_of(table)
    else:
        hashes = hash_columns(key_columns(table, keys), table.num_rows)
    return ((hashes >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int32)


def pack_buckets(table: pa.Table, keys: Sequence[str], count: int) -> list[tuple[int, bytes]]:
    """The rows of each bucket that has any, in their order, as an Arrow IPC stream."""
    if not table.num_rows:
        return []
    bucket = buckets(table, keys, count)
    order = np.argsort(bucket.astype(np.uint16) if count <= 1 << 16 else bucket, kind="stable")
    if count > 1:
        table = table.take(pa.array(order))
    bucket = bucket[order]
    starts = runs_of(bucket).tolist()
    ends = [*starts[1:], len(bucket)]
    return [(int(bucket[a]), _stream(table.slice(a, b - a))) for a, b in zip(starts, ends, strict=True)]


def unpack(packed: bytes) -> pa.Table:
    """The rows that were packed; they share the memory of `packed`."""
    with pa.ipc.open_stream(packed) as reader:
        return reader.read_all()


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue().to_pybytes())
