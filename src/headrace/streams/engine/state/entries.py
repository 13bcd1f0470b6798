"""An entry of a bucket's log as bytes, the same in a file and in an object; no I/O.

An entry is: 8 bytes that say what it is; size and checksum of the head; the head as JSON, with
size and checksum of every blob; the blobs.
"""

import json
import struct
from collections.abc import Sequence
from dataclasses import fields as fields_of
from typing import Any

from crc32c import crc32c

from headrace.streams.engine.state.log import Head

__all__ = ["START_BYTES", "decode_entry", "decode_head", "encode_entry", "head_bytes", "whose"]

_MAGIC = b"hr.state"
_START = struct.Struct("<8sII")
START_BYTES = _START.size
_FIELDS = [each.name for each in fields_of(Head)]

Described = Sequence[tuple[int, int]]  # size and checksum of every blob


def encode_entry(head: Head, blobs: Sequence[bytes]) -> list[bytes]:
    """The parts of an entry, one behind the other."""
    fields = {name: getattr(head, name) for name in _FIELDS}  # `asdict` copies all that is in them
    fields["blobs"] = [(len(blob), crc32c(blob)) for blob in blobs]
    described = json.dumps(fields, separators=(",", ":")).encode()
    return [_START.pack(_MAGIC, len(described), crc32c(described)), described, *blobs]


def head_bytes(start: bytes) -> tuple[int, int]:
    """Size and checksum of the head behind these first bytes; ValueError if they are none of an entry."""
    magic, size, checksum = _START.unpack(start) if len(start) == _START.size else (b"", 0, 0)
    if magic != _MAGIC:
        raise ValueError("it does not begin as an entry does")
    return size, checksum


def decode_head(described: bytes, size: int, checksum: int, query: str | None) -> tuple[Head, Described]:
    """A head and what it says of its blobs; ValueError if it is damaged, LookupError if another query's."""
    if len(described) != size or crc32c(described) != checksum:
        raise ValueError("its head is damaged")
    fields: dict[str, Any] = json.loads(described)
    blobs = fields.pop("blobs")
    owner = fields.get("query")
    if query is not None and owner != query:
        raise LookupError("an older version, which named no query" if owner is None else f"query {owner}")
    return Head(**fields), blobs


def decode_entry(data: bytes, query: str) -> tuple[Head, list[bytes]]:
    """A whole entry; raises as `decode_head` does."""
    size, checksum = head_bytes(data[:START_BYTES])
    at = START_BYTES + size
    head, described = decode_head(data[START_BYTES:at], size, checksum, query)
    blobs = []
    for length, expected in described:
        blobs.append(data[at : at + length])
        at += length
        if len(blobs[-1]) != length or crc32c(blobs[-1]) != expected:
            raise ValueError("a blob is damaged")
    return head, blobs


def whose(number: int, owner: str, query: str) -> str:
    """Says that an entry belongs to somebody else, and what to do."""
    return (
        f"the state behind batch {number} is that of {owner}, and not of query {query}: "
        "executors that do not share the --data folder keep what earlier queries left there; see "
        "that all of them share it, then rebuild the views from the log (headrace run --rebuild)"
    )
