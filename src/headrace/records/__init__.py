"""Record batches: Kafka's format v2 as bytes, as records and as Arrow columns.

Promises that bytes which fail a check are refused with `CorruptionError`, and
that a length read from a batch never sizes an allocation beyond a stated bound.
Holds no state and does no I/O. Imports `errors` and `kernels` only; the codecs, aiokafka and
pyarrow are imported by the first function that needs them, since a broker that
passes batches through needs none of them.
"""

from typing import TYPE_CHECKING, Any

from headrace.records.batch import check_batch, checksum, stamp, stamp_append_time
from headrace.records.codec import Codec, decompress
from headrace.records.control import Marker, decode_marker, encode_marker
from headrace.records.header import (
    BATCH_OVERHEAD_BYTES,
    HEADER_BYTES,
    BatchHeader,
    read_header,
)
from headrace.records.inspection import check_records
from headrace.records.record import Record, decode_batch, encode_batch, iterate_batch, rewrite_batch
from headrace.records.thinning import thin_batch
from headrace.records.verifier import BatchVerifier

if TYPE_CHECKING:
    from headrace.records.columns import decode_columns

__all__ = [
    "BATCH_OVERHEAD_BYTES",
    "HEADER_BYTES",
    "BatchHeader",
    "BatchVerifier",
    "Codec",
    "Marker",
    "Record",
    "check_batch",
    "check_records",
    "checksum",
    "decode_batch",
    "decode_columns",
    "decode_marker",
    "decompress",
    "encode_batch",
    "encode_marker",
    "iterate_batch",
    "read_header",
    "rewrite_batch",
    "stamp",
    "stamp_append_time",
    "thin_batch",
]


def __getattr__(name: str) -> Any:
    """Imports the Arrow decoder, and with it numpy, only when somebody asks for it."""
    if name == "decode_columns":
        from headrace.records.columns import decode_columns

        return decode_columns
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
