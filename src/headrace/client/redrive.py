"""Dead letters back to where they came from, each once.

One transaction at a time: the records go to their topics, and how far the dead-letter
topic was read is committed with them, so that a command that is killed, or run twice at
once, neither loses nor repeats one. What carries no word of where it came from, or came
from another queue, stays where it is.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
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

from headrace.client.dead_letters import is_dead_letter_topic
from headrace.client.failures import explained, from_kafka
from headrace.client.group_questions import committed_notes
from headrace.client.questions import ANSWER_TIMEOUT_S, Log, Partition
from headrace.client.redriven import record_again, retention_ms, source_of
from headrace.client.sent_again import SentAgain
from headrace.clock import SystemClock
from headrace.errors import RequestError

__all__ = ["Clients", "Redrive", "dead_letter_topics", "redrive_group", "redriven"]

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


def redriven(log: Log, topic: str) -> dict[int, SentAgain]:
    """Which letters of each partition of a dead-letter topic were sent again."""
    notes = committed_notes(log, redrive_group(topic))
    return {
        partition: SentAgain.of(offset, note)
        for (name, partition), (offset, note) in notes.items()
        if name == topic
    }


def dead_letter_topics(log: Log) -> list[dict[str, Any]]:
    """Every dead-letter topic with how many letters are in it, and how many of them were not sent again."""
    found = []
    for topic in sorted(filter(is_dead_letter_topic, log.cluster().topics)):
        limits = log.bounds(log.partitions(topic), committed_only=True)
        sent = redriven(log, topic)
        held = sum(bound.end - bound.start for bound in limits.values())
        again = sum(
            sent.get(index, SentAgain()).count_from(each.start) for (_, index), each in limits.items()
        )
        found.append({"topic": topic, "offsets": held, "waiting": max(0, held - again)})
    return found


class Redrive:
    """Sends the dead letters of one queue, or of a topic of streams, again; `only` these, by partition."""

    def __init__(
        self,
        log: Log,
        name: str,
        dead_letters: str,
        clients: Clients,
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
        self._done: dict[Partition, SentAgain] = {}
        self._first: dict[Partition, int] = {}
        self._read: dict[Partition, int] = {}  # ends of partitions that were read to them
        self._retention_ms: dict[str, int] = {}
        self.sent = self.skipped = 0
        self.targets: Counter[str] = Counter()

    def run(self, progress: Callable[[int], None] = lambda _: None, *, dry_run: bool = False) -> None:
        """Until the dead letters that are there now are through, or `most` of them.

        A dry run counts what would be sent, and leaves everything as it is.
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
        for place in consumer.committed(wanted, ANSWER_TIMEOUT_S):
            self._done[place.topic, place.partition] = SentAgain.of(place.offset, place.metadata)
        open_partitions = {
            each: start for each in ends if (start := self._start(each, ends[each])) < ends[each]
        }
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
            if error is None and partition in open_partitions and self._is_wanted(partition, offset):
                batch.append(message)
            if offset + (error is None) >= ends[partition]:
                open_partitions.pop(partition, None)
                self._read[partition] = ends[partition]  # markers of transactions included
            if len(batch) >= TRANSACTION_RECORDS:
                yield batch
                batch = []
        if batch:
            yield batch

    def _end(self, partition: Partition, end: int) -> int:
        """Where to end: at what is there now, or behind the last that was chosen."""
        chosen = None if self._only is None else self._only.get(partition[1])
        return end if not chosen else min(end, max(chosen) + 1)

    def _start(self, partition: Partition, end: int) -> int:
        """Where to begin to read: where the last one ended, or at the first that was chosen."""
        if self._only is None:
            return self._done[partition].next
        return max(min(self._only.get(partition[1], (end,))), self._first[partition])

    def _is_wanted(self, partition: Partition, offset: int) -> bool:
        if self._done[partition].has(offset):
            return False
        return self._only is None or offset in self._only.get(partition[1], ())

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
                    again = record_again(message, source)
                    self._require_kept(message, again)
                    sender.produce(**again, on_delivery=_collect(refused))
            sender.flush(ANSWER_TIMEOUT_S)
            if refused:
                raise self._refusal(refused[0])
            done = self._behind(batch)
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
        self._sent(batch)

    def _behind(self, batch: list[Message]) -> dict[Partition, SentAgain]:
        """What will have been sent, once a batch is."""
        offsets: dict[Partition, list[int]] = {}
        for message in batch:
            partition, offset = _place(message)
            offsets.setdefault(partition, []).append(offset)
        return {
            each: self._done[each].with_all_before(self._read.get(each, max(own) + 1))
            if self._only is None
            else self._done[each].with_chosen(own, self._first[each])
            for each, own in offsets.items()
        }

    def _require_kept(self, message: Message, again: Mapping[str, Any]) -> None:
        """Raises RequestError if the topic's retention would remove the record as soon as it is there."""
        topic, timestamp_ms = again["topic"], again.get("timestamp")
        if topic not in self._retention_ms:
            configs = self._log.many_topic_configs([topic])[topic]
            self._retention_ms[topic] = retention_ms(configs)
        kept_ms = self._retention_ms[topic]
        if timestamp_ms is None or kept_ms < 0 or timestamp_ms >= SystemClock().now_ms() - kept_ms:
            return
        raise RequestError(
            f"dead letter {message.topic()}:{message.partition()}:{message.offset()} is of a record that is "
            f"older than topic {topic!r} keeps any (retention.ms={kept_ms}) and would be removed again; "
            f"{self.sent} were sent before it, none is lost; raise it (`headrace topics alter`), then repeat"
        )

    def _refusal(self, error: KafkaError) -> RequestError:
        return RequestError(
            f"a dead letter of {self._topic} cannot be sent to its topic: {error.str()};"
            f" {self.sent} were sent before it, none is lost; mend that and run this again",
            code=error.code(),
        )


def _place(message: Message) -> tuple[Partition, int]:
    return (str(message.topic()), int(message.partition() or 0)), int(message.offset() or 0)


def _collect(refused: list[KafkaError]) -> Callable[[KafkaError | None, Message], None]:
    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    return delivered


def _abort(sender: Producer) -> None:
    with suppress(KafkaException):  # fenced, or unreachable: the broker aborts it in time
        sender.abort_transaction(ANSWER_TIMEOUT_S)
