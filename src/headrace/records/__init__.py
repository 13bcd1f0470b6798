"""Record batches: Kafka's format v2 as bytes, as records and as Arrow columns; and the headers of records.

Promises that bytes which fail a check are refused with `CorruptionError`, and
that a length read from a batch never sizes an allocation beyond a stated bound.
Holds no state and does no I/O. Imports `errors` and `kernels` only; the codecs, aiokafka and
pyarrow are imported by the first function that needs them, since a broker that
passes batches through needs none of them.
"""

from typing import TYPE_CHECKING, Any

from headrace.records.batch import check_batch, checksum, stamp, stamp_append_time
from headrace.records.batch_filter import filter_batch
from headrace.records.batch_header import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD_BYTES,
    CODEC_BITS,
    CONTROL_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from headrace.records.codec import Codec, decompress
from headrace.records.decompressed_size import expansion_bound
from headrace.records.headers import (
    COMMAND_PREFIX,
    DEAD_LETTER_PREFIXES,
    EVENT_PREFIX,
    HOOK_ID_HEADER,
    HOOK_NAME_HEADER,
    LATE_PREFIX,
    QUEUE_PREFIX,
    REDRIVEN_FROM,
    REDRIVEN_OWNER,
    REDRIVEN_PREFIX,
    REDRIVEN_SOURCE,
    REPLAY_HEADER,
    SOURCE_HEADER,
    STREAM_PREFIX,
    TIME_HEADER,
    WATERMARK_HEADER,
    Headers,
    SourceRecord,
    encode_headers,
    format_source,
    last_header,
    parse_source,
    parse_source_header,
    parse_watermark,
    read_headers,
    source_header,
)
from headrace.records.record import (
    Record,
    assemble,
    decode_batch,
    encode_batch,
    encode_record,
    iterate_batch,
    plain_batch,
    read_rows,
    rewrite_batch,
    write_record,
)
from headrace.records.transaction_markers import Marker, decode_marker, encode_marker
from headrace.records.validation import check_records
from headrace.records.verifier import BatchVerifier

if TYPE_CHECKING:
    from headrace.records.columns import COLUMNS, Places, Records, decode_columns, lay_out

__all__ = [
    "ATTRIBUTES_AT",
    "BATCH_OVERHEAD_BYTES",
    "CODEC_BITS",
    "COLUMNS",
    "COMMAND_PREFIX",
    "CONTROL_BIT",
    "DEAD_LETTER_PREFIXES",
    "EVENT_PREFIX",
    "HEADER_BYTES",
    "HOOK_ID_HEADER",
    "HOOK_NAME_HEADER",
    "LATE_PREFIX",
    "QUEUE_PREFIX",
    "REDRIVEN_FROM",
    "REDRIVEN_OWNER",
    "REDRIVEN_PREFIX",
    "REDRIVEN_SOURCE",
    "REPLAY_HEADER",
    "SOURCE_HEADER",
    "STREAM_PREFIX",
    "TIME_HEADER",
    "TRANSACTIONAL_BIT",
    "WATERMARK_HEADER",
    "BatchHeader",
    "BatchVerifier",
    "Codec",
    "Headers",
    "Marker",
    "Places",
    "Record",
    "Records",
    "SourceRecord",
    "assemble",
    "check_batch",
    "check_records",
    "checksum",
    "decode_batch",
    "decode_columns",
    "decode_marker",
    "decompress",
    "encode_batch",
    "encode_headers",
    "encode_marker",
    "encode_record",
    "expansion_bound",
    "filter_batch",
    "format_source",
    "iterate_batch",
    "last_header",
    "lay_out",
    "parse_source",
    "parse_source_header",
    "parse_watermark",
    "plain_batch",
    "read_header",
    "read_headers",
    "read_rows",
    "rewrite_batch",
    "source_header",
    "stamp",
    "stamp_append_time",
    "write_record",
]


def __getattr__(name: str) -> Any:
    """Imports the Arrow decoder, and with it numpy, only when somebody needs it."""
    if name in ("COLUMNS", "Places", "Records", "decode_columns", "lay_out"):
        from headrace.records import columns

        return getattr(columns, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
