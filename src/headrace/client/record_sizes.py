"""The size of records on the log, and its limit for records made from others. Pure."""

from collections.abc import Iterable

__all__ = ["LARGEST_RECORD_BYTES", "LARGE_RECORD_CONFIGS", "wire_bytes"]

# A dead letter, or a record made from another, is larger than the original. The topics that Headrace
# creates for these take this much, whatever their source topics take: the largest batch that our log and
# Kafka take by default, however it is compressed, and that any client can read.
LARGEST_RECORD_BYTES = 64 << 20
LARGE_RECORD_CONFIGS = {"max.message.bytes": str(LARGEST_RECORD_BYTES)}

_BATCH_BYTES = 61 + 36  # a batch's header; a record's length, attributes, deltas, and lengths of its parts
_HEADER_BYTES = 10


def wire_bytes(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]] = ()
) -> int:
    """An upper bound, by a few bytes, of the size of a batch of this one record, uncompressed."""
    own = sum(_HEADER_BYTES + len(name.encode()) + len(said or b"") for name, said in headers)
    return _BATCH_BYTES + len(key or b"") + len(value or b"") + own
