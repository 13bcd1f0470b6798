"""Dead letters back to where they came from, each once.

One transaction at a time: the records go to their topics, and how far the dead-letter
topic was read is committed with them, so that a command that is killed, or run twice at
once, neither loses nor repeats one. What carries no word of where it came from, or came
from another queue, stays where it is.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Protocol

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from headrace.client.dead_letters import PREFIXES, STREAM_PREFIX, is_dead_letter_topic, read_letter
from headrace.client.failures import explained, from_kafka
from headrace.client.group_questions import committed_offsets
from headrace.client.questions import ANSWER_TIMEOUT_S, Log, Partition
from headrace.errors import RequestError

__all__ = ["Clients", "Redrive", "dead_letter_topics", "redrive_group", "redriven", "source_of"]

TRANSACTION_RECORDS = 500


def redrive_group(name: str) -> str:
    """The group whose offsets say how far a queue's, or a topic's, dead letters were sent again."""
    return f"headrace-redrive.{name}"


class Clients(Protocol):
    """Makes the clients that sending again needs, as whoever asks for it reaches the log."""

    def reader(self, **properties: Any) -> Consumer:
        """A consumer for `assign` only, whose end of a partition is an event."""

    def producer(self, **properties: Any) -> Producer:
        """An idempotent producer."""


def redriven(log: Log, topic: str) -> dict[int, int]:
    """How far each partition of a dead-letter topic was sent again."""
    offsets = committed_offsets(log, redrive_group(topic))
    return {partition: offset for (name, partition), offset in offsets.items() if name == topic}


def dead_letter_topics(log: Log) -> list[dict[str, Any]]:
    """Every dead-letter topic with how many letters are in it, and how many of them were not sent again."""
    found = []
    for topic in sorted(filter(is_dead_letter_topic, log.cluster().topics)):
        limits = log.bounds(log.partitions(topic), committed_only=True)
        next_offsets = redriven(log, topic)
        held = sum(bound.end - bound.start for bound in limits.values())
        waiting = sum(
            bound.end - max(bound.start, next_offsets.get(index, 0)) for (_, index), bound in limits.items()
        )
        found.append({"topic": topic, "offsets": held, "waiting": waiting})
    return found


def source_of(message: Message, queue: str | None) -> TopicPartition | None:
    """Where a dead letter came from; None if it does not say, or is not of the queue that is named."""
    letter = read_letter(_headers(message))
    if letter is None or letter.source is None or queue not in (None, letter.owner):
        return None
    return TopicPartition(*letter.source)


class Redrive:
    """Sends the dead letters of one queue, or of a topic of streams, again."""

    def __init__(
        self,
        log: Log,
        name: str,
        dead_letters: str,
        clients: Clients,
        *,
        most: int | None = None,
        of_streams: bool = False,
    ) -> None:
        self._log = log
        self._queue = None if of_streams else name
        self._topic = dead_letters
        self._clients = clients
        self._most = most
        self._group = redrive_group(name)
        self.sent = self.skipped = 0
        self.targets: Counter[str] = Counter()

    def run(self, progress: Callable[[int], None] = lambda _: None, *, dry_run: bool = False) -> None:
        """Until the dead letters that are there now are through, or `most` of them.

        A dry run counts what would be sent, and leaves everything as it is.
        """
        bootstrap = self._log.bootstrap
        partitions = self._log.partitions(self._topic)
        ends = {
            each: limits.end for each, limits in self._log.bounds(partitions, committed_only=True).items()
        }
        properties: dict[str, Any] = {
            "group.id": self._group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
        consumer = self._clients.reader(**properties)
        with explained("sending dead letters again", bootstrap):
            if dry_run:
                self._count(consumer, ends)
                return
            sender = self._clients.producer(**{"transactional.id": self._group})
            sender.init_transactions(ANSWER_TIMEOUT_S)  # whoever else redrives this queue is fenced
            try:
                for batch in self._batches(consumer, ends):
                    self._send(sender, consumer, batch)
                    progress(self.sent)
            finally:
                consumer.close()

    def _count(self, consumer: Consumer, ends: dict[Partition, int]) -> None:
        try:
            for batch in self._batches(consumer, ends):
                self._sent(batch)
        finally:
            consumer.close()

    def _sent(self, batch: list[Message]) -> None:
        sources = [source for message in batch if (source := source_of(message, self._queue)) is not None]
        self.targets.update(source.topic for source in sources)
        self.sent += len(sources)
        self.skipped += len(batch) - len(sources)

    def _batches(self, consumer: Consumer, ends: dict[Partition, int]) -> Iterator[list[Message]]:
        """What was not sent yet, transaction by transaction."""
        wanted = [TopicPartition(topic, index) for topic, index in ends]
        places = consumer.committed(wanted, ANSWER_TIMEOUT_S)
        open_partitions: dict[Partition, int] = {}
        for place in places:
            start = max(place.offset, 0)
            if start < ends[place.topic, place.partition]:
                open_partitions[place.topic, place.partition] = start
        consumer.assign([TopicPartition(*each, start) for each, start in open_partitions.items()])
        batch: list[Message] = []
        while open_partitions and not self._is_enough(len(batch)):
            message = consumer.poll(ANSWER_TIMEOUT_S)
            if message is None:
                raise TimeoutError
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise from_kafka(error, "reading dead letters", self._log.bootstrap)
            partition, offset = _place(message)
            if error is None and partition in open_partitions:
                batch.append(message)
            if offset + (error is None) >= ends[partition]:
                open_partitions.pop(partition, None)
            if len(batch) >= TRANSACTION_RECORDS:
                yield batch
                batch = []
        if batch:
            yield batch

    def _is_enough(self, waiting: int) -> bool:
        return self._most is not None and self.sent + self.skipped + waiting >= self._most

    def _send(self, sender: Producer, consumer: Consumer, batch: list[Message]) -> None:
        """One transaction."""
        refused: list[KafkaError] = []
        sender.begin_transaction()
        try:
            for message in batch:
                source = source_of(message, self._queue)
                if source is not None:
                    sender.produce(**_again(message, source), on_delivery=_collect(refused))
            sender.flush(ANSWER_TIMEOUT_S)
            if refused:
                raise self._refusal(refused[0])
            sender.send_offsets_to_transaction(
                _behind(batch), consumer.consumer_group_metadata(), ANSWER_TIMEOUT_S
            )
            sender.commit_transaction(ANSWER_TIMEOUT_S)
        except (KafkaException, RequestError):
            _abort(sender)
            raise
        self._sent(batch)

    def _refusal(self, error: KafkaError) -> RequestError:
        return RequestError(
            f"a dead letter of {self._topic} cannot be sent to its topic: {error.str()};"
            f" {self.sent} were sent before it, none is lost; mend that and run this again",
            code=error.code(),
        )


def _again(message: Message, source: TopicPartition) -> dict[str, Any]:
    """The record as it was, and where it was meanwhile; a stream's letter has the record's own time."""
    headers = _headers(message)
    kept = [header for header in headers if not header[0].startswith(PREFIXES)]
    came = f"{message.topic()}:{message.partition()}:{message.offset()}".encode()
    again: dict[str, Any] = {
        "topic": source.topic,
        "partition": source.partition,
        "key": message.key(),
        "value": message.value(),
        "headers": [*kept, ("headrace.redriven.from", came)],
    }
    kind, timestamp_ms = message.timestamp()
    if kind == TIMESTAMP_CREATE_TIME and any(name.startswith(STREAM_PREFIX) for name, _ in headers):
        again["timestamp"] = timestamp_ms
    return again


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    headers: Any = message.headers() or []
    return list(headers)


def _place(message: Message) -> tuple[Partition, int]:
    return (str(message.topic()), int(message.partition() or 0)), int(message.offset() or 0)


def _collect(refused: list[KafkaError]) -> Callable[[KafkaError | None, Message], None]:
    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    return delivered


def _behind(batch: list[Message]) -> list[TopicPartition]:
    """Where to go on after a batch."""
    ends: dict[Partition, int] = {}
    for message in batch:
        partition, offset = _place(message)
        ends[partition] = max(ends.get(partition, 0), offset + 1)
    return [TopicPartition(topic, index, offset) for (topic, index), offset in ends.items()]


def _abort(sender: Producer) -> None:
    with suppress(KafkaException):  # fenced, or unreachable: the broker aborts it in time
        sender.abort_transaction(ANSWER_TIMEOUT_S)
