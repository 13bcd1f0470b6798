"""One topic of an application under test: a list of records, which is read as the feed reads a log."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from headrace.client.write import OutputRecord
from headrace.errors import ConfigError
from headrace.records import Record, encode_batch, lay_out, stamp
from headrace.streams import PROCESSING_TIME, Mark, PartitionTime, StreamSpec, TopicPosition
from headrace.streams.feed import (
    FeedPosition,
    FeedRange,
    Heartbeat,
    SilenceMeter,
    Stamped,
    Stamper,
    feed_ranges,
    idle_partitions,
    next_position,
)

__all__ = ["RUN", "RecordList", "TopicFeed", "murmur2", "partition_of"]

RUN = "test"
_TOPIC_ID = UUID(int=1)
_SEED, _FACTOR, _WORD = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF  # of murmur2


class RecordList:
    """Records written to topics, by topic, in order."""

    def __init__(self) -> None:
        self._records: list[OutputRecord] = []
        self._taken = 0

    def write(self, batch_id: int, records: Iterable[OutputRecord]) -> bool:  # noqa: ARG002
        self._records.extend(records)
        return True

    def take_new(self) -> list[OutputRecord]:
        """The records written since the last call."""
        found = self._records[self._taken :]
        self._taken = len(self._records)
        return found

    def of(self, topic: str) -> list[OutputRecord]:
        return [record for record in self._records if record.topic == topic]


class TopicFeed:
    """The records of a topic, and how far they have been read, batch by batch."""

    def __init__(self, spec: StreamSpec, partitions: int, heartbeat: Heartbeat | None, now_us: int) -> None:
        self._spec = spec
        self._heartbeat = heartbeat
        self._log: dict[int, list[Record]] = {each: [] for each in range(partitions)}
        self._position = FeedPosition.first(self._end(), RUN)
        self._times: dict[int, PartitionTime] = dict(self._position.times)
        self._meter = SilenceMeter()
        self._meter.observe(self._position, self._end(), now_us)
        self._idle: frozenset[int] = frozenset()
        self._maker_watermark_us: int | None = None

    def append(
        self,
        value: Mapping[str, Any] | bytes | None,
        *,
        partition: int,
        key: str | bytes | None,
        moment_us: int,
        headers: tuple[tuple[str, bytes | None], ...],
    ) -> None:
        if partition not in self._log:
            raise ConfigError(
                f"{self._spec.topic} has partitions 0 to {len(self._log) - 1}, not {partition}; "
                "declare more with app.stream(…, partitions=…)"
            )
        records = self._log[partition]
        records.append(
            Record(
                len(records),
                moment_us // 1000,
                key.encode() if isinstance(key, str) else key,
                json.dumps(value).encode() if isinstance(value, Mapping) else value,
                headers,
            )
        )

    def append_written(self, record: OutputRecord, now_us: int) -> None:
        """A record that the application wrote to this topic, where its key says."""
        partition = record.partition
        if partition is None:
            partition = 0 if record.key is None else partition_of(record.key, len(self._log))
        self.append(
            record.value, partition=partition, key=record.key, moment_us=now_us, headers=record.headers
        )

    def tell(self, watermark_us: int | None) -> bool:
        """Takes in the watermark of the topic's maker, once all it wrote is here; True if it is new."""
        if watermark_us is None or not self._spec.follows_maker:
            return False
        before, self._maker_watermark_us = self._maker_watermark_us, self._spec.from_maker(watermark_us)
        return self._maker_watermark_us != before

    def due(self, now_us: int) -> FeedPosition | None:
        """The end of the micro-batch that is due now, if one is."""
        latest = self._end()
        silence = self._meter.observe(self._position, latest, now_us)
        self._idle = idle_partitions(self._position, latest, silence, self._spec.idle_after_us)
        following = next_position(
            self._position,
            self._times,
            latest,
            silence,
            admitted=latest,
            idle_after_us=self._spec.idle_after_us,
            heartbeat=self._heartbeat,
            now_us=now_us if self._spec.event_time == PROCESSING_TIME else 0,
            maker_watermark_us=self._maker_watermark_us,
        )
        return None if following == self._position else following

    def standing(self) -> FeedPosition:
        """An empty micro-batch, for a query of which only other topics go on."""
        now = self._position
        return replace(now, start=dict(now.next), times=dict(self._times), idle=self._idle)

    def read(self, position: FeedPosition) -> Iterator[tuple[Stamped, Mark]]:
        """The micro-batch that ends here, partition by partition; the next one begins behind it."""
        self._position = position
        for span in feed_ranges(position):
            stamper = Stamper(self._spec, span.partition, span.time, now_us=span.now_us)
            stamped = stamper.stamp(lay_out(self._batch(span)))
            self._times[span.partition] = stamper.time
            yield stamped, self._mark(span, stamper.time, stamped)

    def _end(self) -> TopicPosition:
        ends = {partition: len(records) for partition, records in self._log.items()}
        return TopicPosition(topic=self._spec.topic, topic_id=_TOPIC_ID, next=ends)

    def _batch(self, span: FeedRange) -> bytes | bytearray:
        """The records of a range, as a batch of the log."""
        records = self._log[span.partition][span.start : span.end]
        if not records:
            return b""
        batch = encode_batch(records)
        stamp(batch, 0, span.start, 0)
        return batch

    def _mark(self, span: FeedRange, time: PartitionTime, stamped: Stamped) -> Mark:
        return Mark(
            topic=span.topic,
            run=span.run,
            partition=span.partition,
            next=span.end,
            time=time,
            times=span.times,
            lateness_us=self._spec.lateness_us,
            idle_after_us=self._spec.idle_after_us,
            follows_maker=self._spec.follows_maker,
            maker_watermark_us=span.maker_watermark_us,
            idle=span.idle,
            silence_us=span.silence_us,
            records=stamped.records,
            rows=stamped.rows.num_rows,
            dead=stamped.dead_count,
            repeated=stamped.repeated,
        )


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key on a topic with so many, as Kafka's own clients choose it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(key: bytes) -> int:
    """The 32-bit hash of Kafka's partitioner, unsigned."""
    found = _SEED ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _FACTOR & _WORD
        word = (word ^ word >> 24) * _FACTOR & _WORD
        found = found * _FACTOR & _WORD ^ word
    if whole < len(key):
        found = (found ^ int.from_bytes(key[whole:], "little")) * _FACTOR & _WORD
    found = (found ^ found >> 13) * _FACTOR & _WORD
    return found ^ found >> 15
