"""What a topic's settings say of the times in a batch, and which records a refusal is about."""

from headrace.errors import CorruptionError, RequestError
from headrace.records import BatchHeader, Record, decode_batch
from headrace.storage import TopicConfig
from headrace.wire import ErrorCode

__all__ = ["bad_records", "check_times"]


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
