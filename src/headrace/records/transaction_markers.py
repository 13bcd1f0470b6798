"""Control batches: the markers that end a transaction in a partition.

A batch of one record, transactional and control, without sequence number and
never compressed. Its key is a version and a type (0 abort, 1 commit), its value
a version and the epoch of the coordinator that wrote it, all big-endian.
"""

import struct
from typing import NamedTuple

from headrace.errors import CorruptionError
from headrace.records.batch_header import BatchHeader
from headrace.records.record import Record, decode_batch, encode_batch

__all__ = ["Marker", "decode_marker", "encode_marker"]

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0
_ABORT, _COMMIT = 0, 1


class Marker(NamedTuple):
    """The end of a transaction in one partition, as its control batch says."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool


def encode_marker(marker: Marker, timestamp_ms: int) -> bytearray:
    """The control batch of a marker, with a base offset of 0."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.commit else _ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return encode_batch(
        [Record(0, timestamp_ms, key, value)],
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transactional=True,
        control=True,
    )


def decode_marker(header: BatchHeader, batch: bytes | bytearray | memoryview) -> Marker | None:
    """The marker in a control batch, None if it is a control batch of another kind.

    Raises CorruptionError if the batch is not what its header claims. Fields that
    newer versions of the format add behind these are passed over.
    """
    if not header.is_control or not header.is_transactional:
        return None
    records = decode_batch(batch)
    try:
        (_, kind), (_, epoch) = (
            _KEY.unpack_from(records[0].key or b""),
            _VALUE.unpack_from(records[0].value or b""),
        )
    except (IndexError, struct.error) as error:
        raise CorruptionError(f"the control batch at offset {header.base_offset}: {error}") from error
    if kind not in (_ABORT, _COMMIT):
        return None
    return Marker(header.producer_id, header.producer_epoch, epoch, kind == _COMMIT)
