"""Redrives dead letters: sends them back to the topics they came from, each exactly once.

One transaction at a time writes the records to their topics and commits the progress in the
dead-letter topic, so that a redrive that is killed, or run twice at once, neither loses nor
repeats one. Dead letters that do not say where they came from, or belong to another queue,
stay where they are.

A redriven record has more headers than before. If its topic does not take it because of
that, the topic's limit is raised. A dead letter with only the beginning of its record is sent
as the record itself, which is read from its source; if that is gone, the dead letter stays.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from headrace.client.connect import explained, from_kafka
from headrace.client.deadletters.letters import is_dead_letter_topic
from headrace.client.deadletters.redrive_progress import RedriveProgress
from headrace.client.deadletters.restore import (
    bytes_of,
    is_shortened,
    limit_bytes,
    origin_of,
    restored_record,
    retention_ms,
)
from headrace.client.fetcher import RawFetcher
from headrace.client.groups.describe import committed_with_metadata
from headrace.client.record_sizes import wire_bytes
from headrace.client.topics import ANSWER_TIMEOUT_S, Log, PartitionKey, RecordCounter, alter_configs
from headrace.clock import SystemClock
from headrace.errors import RequestError
from headrace.records import REDRIVEN_FROM

__all__ = ["ClientFactory", "Redrive", "dead_letter_topics", "redrive_group", "redrive_progress"]

TRANSACTION_RECORDS = 500
TRANSACTION_BYTES = 16 << 20
_SENDING = {
    "message.max.bytes": 1_000_000_000,  # librdkafka's most: the topic's limit is what counts
    "batch.size": 16_384,  # a topic may take no more than one of its own records
}
_READING = {"receive.message.max.bytes": 1_000_000_000}


def redrive_group(name: str) -> str:
    """The group whose offsets are the redrive progress of a queue, or of a topic."""
    return f"headrace-redrive.{name}"


class ClientFactory(Protocol):
    """Makes the clients that a redrive needs, connected as its caller is."""

    def reader(self, **properties: Any) -> Consumer:
        """A consumer for `assign` only, with partition-end events."""

    def producer(self, **properties: Any) -> Producer:
        """An idempotent producer."""


def redrive_progress(log: Log, topic: str) -> dict[int, RedriveProgress]:
    """Which dead letters of each partition of a topic have been redriven."""
    notes = committed_with_metadata(log, redrive_group(topic))
    return {
        partition: RedriveProgress.of(offset, note)
        for (name, partition), (offset, note) in notes.items()
        if name == topic
    }


def dead_letter_topics(log: Log, fetcher: RawFetcher, counter: RecordCounter) -> list[dict[str, Any]]:
    """Every dead-letter topic with the number of its letters, and of those not redriven yet.

    If the counter may not read all of them, the numbers are upper bounds, and `exact` is false.
    """
    found = []
    for topic in sorted(filter(is_dead_letter_topic, log.cluster().topics)):
        limits = {
            index: each for (_, index), each in log.bounds(log.partitions(topic), committed_only=True).items()
        }
        known, sent = counter.learn(fetcher, topic, limits), redrive_progress(log, topic)
        held = {index: known[index].count(each.start, each.end) for index, each in limits.items()}
        again = sum(
            known[index].count(start, end)
            for index, each in limits.items()
            for start, end in sent.get(index, RedriveProgress()).ranges(each.start, each.end)
        )
        letters = sum(held.values())
        found.append(
            {
                "topic": topic,
                "offsets": sum(each.end - each.start for each in limits.values()),
                "letters": letters,
                "waiting": letters - again,
                "exact": all(known[index].to >= each.end for index, each in limits.items()),
            }
        )
    return found


class Redrive:
    """Redrives the dead letters of one queue, or of a stream's topic; `only` these offsets, by partition."""

    def __init__(
        self,
        log: Log,
        name: str,
        dead_letters: str,
        clients: ClientFactory,
        *,
        most: int | None = None,
        of_streams: bool = False,
        only: Mapping[int, Collection[int]] | None = None,
    ) -> None:
        self._log = log
        self._queue = None if of_streams else name
        self._topic = dead_letters
        self._clients = clients
        self._most = most
        self._group = redrive_group(name)
        self._only = only
        self._done: dict[PartitionKey, RedriveProgress] = {}
        self._first: dict[PartitionKey, int] = {}
        self._read: dict[PartitionKey, int] = {}  # partitions that were read to their ends
        self._configs: dict[str, Mapping[str, Any]] = {}
        self._limits: dict[str, int] = {}  # of topics whose limit has been raised
        self._originals: Consumer | None = None
        self.sent = self.skipped = 0
        self.targets: Counter[str] = Counter()

    def run(self, progress: Callable[[int], None] = lambda _: None, *, dry_run: bool = False) -> None:
        """Redrives the dead letters that exist now, or `most` of them.

        A dry run counts what would be sent, and changes nothing.
        """
        bootstrap = self._log.bootstrap
        partitions = self._log.partitions(self._topic)
        bounds = self._log.bounds(partitions, committed_only=True)
        self._first = {each: limits.start for each, limits in bounds.items()}
        ends = {each: self._end(each, limits.end) for each, limits in bounds.items()}
        properties: dict[str, Any] = {
            "group.id": self._group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            **_READING,
        }
        consumer = self._clients.reader(**properties)
        with explained("redriving dead letters", bootstrap):
            try:
                if dry_run:
                    for batch in self._batches(consumer, ends):
                        self._sent(each["topic"] for each in self._restored(batch))
                    return
                sender = self._clients.producer(**{"transactional.id": self._group, **_SENDING})
                sender.init_transactions(ANSWER_TIMEOUT_S)  # fences any other redrive of this queue
                for batch in self._batches(consumer, ends):
                    self._send(sender, consumer, batch)
                    progress(self.sent)
            finally:
                consumer.close()
                if self._originals is not None:
                    self._originals.close()

    @property
    def raised(self) -> dict[str, int]:
        """Topics whose `max.message.bytes` had to be raised, and to what."""
        return dict(self._limits)

    def _sent(self, topics: Iterable[str]) -> None:
        self.targets.update(topics)
        self.sent = self.targets.total()

    def _restored(self, batch: list[Message]) -> Iterator[dict[str, Any]]:
        """The records to send for a batch of dead letters; those that stay are counted."""
        for message in batch:
            source = origin_of(message, self._queue)
            if source is None:
                self.skipped += 1
                continue
            original = self._original(source) if is_shortened(message) else None
            if original is None and is_shortened(message):
                self.skipped += 1
                continue
            yield restored_record(message, source, original)

    def _original(self, place: TopicPartition) -> Message | None:
        """The original record of a dead letter; None if its topic no longer has it."""
        if self._originals is None:
            self._originals = self._clients.reader(
                **{"group.id": self._group, "auto.offset.reset": "latest", **_READING}
            )
        self._originals.assign([place])
        message = self._originals.poll(ANSWER_TIMEOUT_S)
        if message is None:
            raise TimeoutError
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise from_kafka(error, "reading the record of a dead letter", self._log.bootstrap)
        return message if error is None and message.offset() == place.offset else None

    def _batches(self, consumer: Consumer, ends: dict[PartitionKey, int]) -> Iterator[list[Message]]:
        """The dead letters that have not been redriven, by transaction."""
        wanted = [TopicPartition(topic, index) for topic, index in ends]
        for place in consumer.committed(wanted, ANSWER_TIMEOUT_S):
            if place.error is not None:
                raise from_kafka(place.error, "reading the progress of redriving", self._log.bootstrap)
            self._done[place.topic, place.partition] = RedriveProgress.of(place.offset, place.metadata)
        open_partitions = {
            each: start for each in ends if (start := self._start(each, ends[each])) < ends[each]
        }
        consumer.assign([TopicPartition(*each, start) for each, start in open_partitions.items()])
        batch, size = list[Message](), 0
        while open_partitions and not self._is_enough(len(batch)):
            message = consumer.poll(ANSWER_TIMEOUT_S)
            if message is None:
                raise TimeoutError
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise from_kafka(error, "reading dead letters", self._log.bootstrap)
            partition, offset = _place(message)
            if error is None and partition in open_partitions and self._is_wanted(partition, offset):
                batch.append(message)
                size += bytes_of(message)
            if offset + (error is None) >= ends[partition]:
                open_partitions.pop(partition, None)
                self._read[partition] = ends[partition]  # transaction markers included
            if len(batch) >= TRANSACTION_RECORDS or size >= TRANSACTION_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _end(self, partition: PartitionKey, end: int) -> int:
        """Where to end: at the current end, or after the last one that was chosen."""
        chosen = None if self._only is None else self._only.get(partition[1])
        return end if not chosen else min(end, max(chosen) + 1)

    def _start(self, partition: PartitionKey, end: int) -> int:
        """Where to begin: where the last redrive ended, or at the first one that was chosen."""
        if self._only is None:
            return self._done[partition].next
        return max(min(self._only.get(partition[1], (end,))), self._first[partition])

    def _is_wanted(self, partition: PartitionKey, offset: int) -> bool:
        if self._done[partition].has(offset):
            return False
        return self._only is None or offset in self._only.get(partition[1], ())

    def _is_enough(self, waiting: int) -> bool:
        return self._most is not None and self.sent + self.skipped + waiting >= self._most

    def _send(self, sender: Producer, consumer: Consumer, batch: list[Message]) -> None:
        """One transaction."""
        refused: list[KafkaError] = []
        topics: list[str] = []
        sender.begin_transaction()
        try:
            for record in self._restored(batch):
                self._require_retained(record)
                self._raise_limit(record)
                sender.produce(**record, on_delivery=_collect(refused))
                topics.append(record["topic"])
            sender.flush(ANSWER_TIMEOUT_S)
            if refused:
                raise self._refusal(refused[0])
            done = self._progress_after(batch)
            sender.send_offsets_to_transaction(
                [TopicPartition(*each, now.next, now.to_metadata()) for each, now in done.items()],
                consumer.consumer_group_metadata(),
                ANSWER_TIMEOUT_S,
            )
            sender.commit_transaction(ANSWER_TIMEOUT_S)
        except (KafkaException, RequestError):
            _abort(sender)
            raise
        self._done |= done
        self._sent(topics)

    def _progress_after(self, batch: list[Message]) -> dict[PartitionKey, RedriveProgress]:
        """The progress once a batch has been redriven."""
        offsets: dict[PartitionKey, list[int]] = {}
        for message in batch:
            partition, offset = _place(message)
            offsets.setdefault(partition, []).append(offset)
        return {
            each: self._done[each].with_all_before(self._read.get(each, max(own) + 1))
            if self._only is None
            else self._done[each].with_chosen(own, self._first[each])
            for each, own in offsets.items()
        }

    def _topic_configs(self, topic: str) -> Mapping[str, Any]:
        if topic not in self._configs:
            self._configs[topic] = self._log.many_topic_configs([topic])[topic]
        return self._configs[topic]

    def _raise_limit(self, restored: Mapping[str, Any]) -> None:
        """Raises the topic's limit if the record is larger, with the headers that it has now."""
        topic = restored["topic"]
        takes = self._limits.get(topic, limit_bytes(self._topic_configs(topic)))
        needed = wire_bytes(restored["key"], restored["value"], restored["headers"])
        if takes is not None and needed > takes:
            alter_configs(self._log, topic, {"max.message.bytes": str(needed)}, ())
            self._limits[topic] = needed

    def _require_retained(self, restored: Mapping[str, Any]) -> None:
        """Raises RequestError if the topic's retention would delete the record at once."""
        topic, timestamp_ms = restored["topic"], restored.get("timestamp")
        kept_ms = retention_ms(self._topic_configs(topic))
        if timestamp_ms is None or kept_ms < 0 or timestamp_ms >= SystemClock().now_ms() - kept_ms:
            return
        place = dict(restored["headers"])[REDRIVEN_FROM].decode()
        raise RequestError(
            f"dead letter {place} holds a record that is older than topic {topic!r} keeps records "
            f"(retention.ms={kept_ms}), so it would be deleted at once; {self.sent} were sent before it, "
            "and none is lost; raise retention.ms (`headrace topics alter`) and run this again"
        )

    def _refusal(self, error: KafkaError) -> RequestError:
        return RequestError(
            f"a dead letter of {self._topic} cannot be sent to its topic: {error.str()};"
            f" {self.sent} were sent before it, and none is lost; fix that and run this again",
            code=error.code(),
        )


def _place(message: Message) -> tuple[PartitionKey, int]:
    return (str(message.topic()), int(message.partition() or 0)), int(message.offset() or 0)


def _collect(refused: list[KafkaError]) -> Callable[[KafkaError | None, Message], None]:
    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    return delivered


def _abort(sender: Producer) -> None:
    with suppress(KafkaException):  # fenced, or unreachable: the broker aborts it eventually
        sender.abort_transaction(ANSWER_TIMEOUT_S)
