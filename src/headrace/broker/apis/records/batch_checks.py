"""What is checked of a produced batch before it is appended, and which records a refusal is about."""

from headrace.errors import CorruptionError, RequestError
from headrace.records import BatchHeader, Record, check_batch, decode_batch
from headrace.storage import Topic, TopicConfig
from headrace.wire import ErrorCode

__all__ = ["bad_records", "check_times", "checked_batch"]

NEWEST_CODEC = 4
ZSTD = 4
FIRST_VERSION_WITH_ZSTD = 7


def checked_batch(
    topic: Topic, records: memoryview | None, version: int, *, transactional_id: str | None, admitted: bool
) -> tuple[memoryview, BatchHeader]:
    """The one batch of a partition, once nothing in its header speaks against it.

    `admitted`: the coordinator of transactions let it in. Raises RequestError or CorruptionError.
    """
    if records is None or not len(records):
        raise RequestError("no record batch for the partition", code=ErrorCode.invalid_record)
    if len(records) > topic.config.max_message_bytes:
        raise RequestError(
            f"a batch of {len(records)} bytes; {topic.name} takes"
            f" {topic.config.max_message_bytes} (max.message.bytes)",
            code=ErrorCode.message_too_large,
        )
    header = check_batch(records, 0)
    if header.size_bytes != len(records):
        raise RequestError("more than one record batch for the partition", code=ErrorCode.invalid_record)
    if header.is_transactional and not admitted:
        unnamed = transactional_id is None
        raise RequestError(
            "a transactional batch outside of any transaction known here",
            code=ErrorCode.transactional_id_authorization_failed if unnamed else ErrorCode.invalid_txn_state,
        )
    _check_kind(header, version)
    return records, header


def _check_kind(header: BatchHeader, version: int) -> None:
    if not header.attributes and header.producer_id < 0:  # as plain as can be
        return
    if header.is_control or header.delete_horizon_ms is not None:
        raise RequestError(
            "control batches and delete horizons are written by the broker only",
            code=ErrorCode.invalid_record,
        )
    if (header.producer_id >= 0 and header.base_sequence < 0) or (
        header.is_transactional and header.producer_id < 0
    ):
        raise RequestError(
            f"producer {header.producer_id} sent sequence number {header.base_sequence}",
            code=ErrorCode.invalid_record,
        )
    if header.codec > NEWEST_CODEC or (header.codec == ZSTD and version < FIRST_VERSION_WITH_ZSTD):
        raise RequestError(
            f"codec {header.codec} is unknown here", code=ErrorCode.unsupported_compression_type
        )


def check_times(config: TopicConfig, header: BatchHeader, now_ms: int) -> None:
    """By the first and the latest time of the batch, as its header has them; raises RequestError."""
    if config.stamps_append_time:
        return
    if header.max_timestamp > now_ms + config.message_timestamp_after_max_ms:
        raise RequestError(
            f"a record is of {header.max_timestamp}, further ahead of {now_ms} than"
            f" message.timestamp.after.max.ms={config.message_timestamp_after_max_ms} allows",
            code=ErrorCode.invalid_timestamp,
        )
    if 0 <= header.base_timestamp < now_ms - config.message_timestamp_before_max_ms:
        raise RequestError(
            f"a record is of {header.base_timestamp}, further behind {now_ms} than"
            f" message.timestamp.before.max.ms={config.message_timestamp_before_max_ms} allows",
            code=ErrorCode.invalid_timestamp,
        )


def bad_records(
    code: int, config: TopicConfig, header: BatchHeader, batch: memoryview, now_ms: int
) -> list[dict[str, int]]:
    """The places of the records a batch is refused for, where that needs no decompressing."""
    if header.codec or (code == ErrorCode.invalid_record and not config.compacts):
        return []
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms

    def is_bad(record: Record) -> bool:
        if code == ErrorCode.invalid_timestamp:
            return not earliest <= record.timestamp_ms <= latest
        return record.key is None

    try:
        records = decode_batch(batch)
    except CorruptionError:
        return []
    return [{"batch_index": place} for place, record in enumerate(records) if is_bad(record)]
