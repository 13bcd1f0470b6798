"""Stored state by bucket: the part of a snapshot that belongs to one bucket of another number of them.

A snapshot is a number of tables, of which each row has the key that it was brought to its bucket
by, or the hash of that key. Nothing else of it depends on keys, so what is left of the tables is
again a snapshot.
"""

from collections.abc import Sequence

import pyarrow as pa

from headrace.streams.operators.keys import HASH
from headrace.streams.operators.operator import decode_state, encode_state
from headrace.streams.operators.packing import buckets
from headrace.streams.operators.windows.state import decode_windows, encode_windows, is_of_windows

__all__ = ["part_of_snapshot"]

# By the name of a table without hashes, the input whose keys its rows have.
_INPUTS = {
    "rows": 0,
    "seen": 0,
    "left": 0,
    "left held": 0,
    "events": 0,
    "right": 1,
    "right held": 1,
    "versions": 1,
}


def part_of_snapshot(stored: bytes, inputs: Sequence[Sequence[str] | None], bucket: int, count: int) -> bytes:
    """What of a snapshot belongs to one of `count` buckets; `inputs` are the operator's."""
    if is_of_windows(stored):
        tables, watermark_us = decode_windows(stored)
        kept = [_of_bucket(table, (), bucket, count) for table in tables]
        return encode_windows([table for table in kept if table.num_rows], watermark_us)
    parts, about = decode_state(stored)
    return encode_state(
        {
            name: _of_bucket(table, () if HASH in table.column_names else _keys(inputs, name), bucket, count)
            for name, table in parts.items()
        },
        about,
    )


def _keys(inputs: Sequence[Sequence[str] | None], name: str) -> Sequence[str]:
    keys = inputs[_INPUTS[name]]
    assert keys is not None, f"rows of {name!r} have a key"
    return keys


def _of_bucket(table: pa.Table, keys: Sequence[str], bucket: int, count: int) -> pa.Table:
    return table.filter(pa.array(buckets(table, keys, count) == bucket))
