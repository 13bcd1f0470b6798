"""Who writes to a partition: producers' epochs and sequence numbers, and open transactions.

Pure state, derived from the batches of the log and nothing else, so that it can
be rebuilt from them; a snapshot of it only saves time. The rules are Kafka's:

- A batch carries a producer id, an epoch and the sequence number of its first
  record. Within an epoch the numbers follow each other; a new epoch begins at 0.
  A producer that is not known, because it is new or was forgotten, begins where
  it likes.
- The last five batches of a producer are remembered. One of them sent again is
  not appended again: its producer gets the offset it got the first time. Unless
  its transaction has ended: producers repeat nothing across an end. librdkafka
  gives the sequence numbers of batches that it dropped, when it aborted, to the
  next transaction, though they may have arrived; taken for a repetition those new
  records would be lost. Kafka does that; here the producer is refused with
  UNKNOWN_PRODUCER_ID, on which clients abort and begin a new epoch.
- A transactional batch opens a transaction in this partition, if its producer has
  none open here; a marker closes it. Readers of committed records end before the
  first open one (the last stable offset).
"""

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headrace.errors import CorruptionError, RequestError
from headrace.records import Marker
from headrace.storage.producers.aborted_transactions import AbortedTransaction

__all__ = [
    "REMEMBERED_BATCHES",
    "AbortedTransaction",
    "AppendedMarker",
    "Marker",
    "OpenTransaction",
    "ProducerBatch",
    "ProducerState",
    "ProducerTable",
    "last_sequence",
]

REMEMBERED_BATCHES = 5
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
UNKNOWN_PRODUCER_ID = 59
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
TRANSACTION_COORDINATOR_FENCED = 52

_SEQUENCES = 2**31
_HEAD = struct.Struct(">qI")
_PRODUCER = struct.Struct(">qhqqqiB")
_BATCH = struct.Struct(">iiqqq")


class ProducerBatch(NamedTuple):
    """What a producer's batch says of itself, and the offsets it got."""

    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int
    transactional: bool


def last_sequence(first_sequence: int, last_offset_delta: int) -> int:
    """The sequence number of a batch's last record; they wrap around after 2^31 - 1."""
    return (first_sequence + last_offset_delta) % _SEQUENCES


class AppendedMarker(NamedTuple):
    """A marker and the offset at which it stands."""

    marker: Marker
    offset: int
    timestamp_ms: int


class OpenTransaction(NamedTuple):
    """A transaction that has records here and no marker yet."""

    producer_id: int
    producer_epoch: int
    first_offset: int


class ProducerState(NamedTuple):
    """What is known of a producer; -1 where nothing is, as Kafka tells it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    first_open_offset: int


def _no_batches() -> deque[ProducerBatch]:
    return deque(maxlen=REMEMBERED_BATCHES)


@dataclass(slots=True)
class _Producer:
    epoch: int
    last_timestamp_ms: int = -1
    used_ms: int = 0  # by the broker's clock; 0: not known, the log was reopened since
    coordinator_epoch: int = -1
    batches: deque[ProducerBatch] = field(default_factory=_no_batches)  # of its epoch

    next_sequence: int = 0

    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1


class ProducerTable:
    """The producers of one partition, up to `next_offset`. One thread at a time."""

    def __init__(self) -> None:
        self.next_offset = 0
        self._producers: dict[int, _Producer] = {}
        self._open: dict[int, int] = {}  # first offsets by producer id, the lowest first

    def __len__(self) -> int:
        return len(self._producers)

    # --- appending ----------------------------------------------------------------------------

    def check(self, batch: ProducerBatch) -> ProducerBatch | None:
        """What a producer's batch is: new (None), or one that was appended before.

        Raises RequestError with Kafka's code when its epoch or its sequence number
        is not one that may come next. The batch's offsets are not looked at.
        """
        producer_id, epoch, first, last, _, _, _, transactional = batch
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        expected = producer.next_sequence
        if epoch != producer.epoch:
            _check_epoch(producer, producer_id, epoch)
            expected = 0
        elif first != expected:
            counted_from = self._open.get(producer_id, self.next_offset) if transactional else 0
            for known in producer.batches:
                if (
                    known.first_sequence == first
                    and known.last_sequence == last
                    and known.base_offset >= counted_from
                ):
                    return known
            if any(
                known.first_sequence <= first <= known.last_sequence and known.base_offset < counted_from
                for known in producer.batches
            ):
                raise RequestError(
                    f"producer {producer_id} sent sequence number {first} of an earlier transaction again;"
                    " abort, and go on with the next epoch",
                    code=UNKNOWN_PRODUCER_ID,
                )
        if first != expected:
            raise RequestError(
                f"producer {producer_id} sent sequence number {first}, {expected} is next;"
                " a batch before it is missing",
                code=OUT_OF_ORDER_SEQUENCE_NUMBER,
            )
        if not transactional and producer_id in self._open:
            raise RequestError(
                f"producer {producer_id} has a transaction open here, and this batch is outside of it;"
                " end the transaction first",
                code=INVALID_TXN_STATE,
            )
        return None

    def check_marker(self, marker: Marker) -> None:
        """Raises RequestError when a newer producer or a newer coordinator was here already."""
        producer = self._producers.get(marker.producer_id)
        if producer is None:
            return
        _check_epoch(producer, marker.producer_id, marker.producer_epoch)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise RequestError(
                f"a marker of coordinator epoch {marker.coordinator_epoch}, after one of"
                f" {producer.coordinator_epoch}; another coordinator took over",
                code=TRANSACTION_COORDINATOR_FENCED,
            )

    def add(self, batch: ProducerBatch, now_ms: int = 0) -> None:
        """Takes in a data batch that has its offsets; `now_ms` is 0 when it is read back from the log."""
        producer_id, epoch, _, last, base_offset, last_offset, timestamp_ms, transactional = batch
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != epoch:
            producer = self._of(producer_id, epoch)
        producer.batches.append(batch)
        producer.next_sequence = last + 1 if last != _SEQUENCES - 1 else 0
        producer.last_timestamp_ms = timestamp_ms
        producer.used_ms = now_ms
        self.next_offset = last_offset + 1
        if transactional and producer_id not in self._open:
            self._open[producer_id] = base_offset

    def end(self, ended: AppendedMarker, now_ms: int = 0) -> AbortedTransaction | None:
        """Takes in a marker: the transaction that it aborts, if it has records here."""
        marker = ended.marker
        self.next_offset = ended.offset + 1
        producer = self._of(marker.producer_id, marker.producer_epoch)
        producer.last_timestamp_ms = ended.timestamp_ms
        producer.used_ms = now_ms
        producer.coordinator_epoch = max(producer.coordinator_epoch, marker.coordinator_epoch)
        first = self._open.pop(marker.producer_id, None)
        if first is None or marker.commit:
            return None
        return AbortedTransaction(marker.producer_id, first, ended.offset)

    def _of(self, producer_id: int, epoch: int) -> _Producer:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer(epoch)
        elif epoch != producer.epoch:
            producer.epoch = epoch
            producer.batches.clear()
            producer.next_sequence = 0
        return producer

    # --- reading ------------------------------------------------------------------------------

    def last_stable_offset(self) -> int:
        """Every transaction with a record below it has ended."""
        return next(iter(self._open.values()), self.next_offset)

    def open_transactions(self) -> list[OpenTransaction]:
        """In the order in which they were begun."""
        return [
            OpenTransaction(producer_id, self._producers[producer_id].epoch, first_offset)
            for producer_id, first_offset in self._open.items()
        ]

    def last_batches(self) -> frozenset[int]:
        """Base offsets of the batches from which producers' sequences go on."""
        return frozenset(
            producer.batches[-1].base_offset for producer in self._producers.values() if producer.batches
        )

    def __iter__(self) -> Iterator[ProducerState]:
        for producer_id, producer in self._producers.items():
            yield ProducerState(
                producer_id,
                producer.epoch,
                producer.last_sequence(),
                producer.last_timestamp_ms,
                producer.coordinator_epoch,
                self._open.get(producer_id, -1),
            )

    def copy(self) -> "ProducerTable":
        """A table that goes its own way from here."""
        table = ProducerTable()
        table.next_offset = self.next_offset
        table._open = dict(self._open)
        table._producers = {
            producer_id: replace(producer, batches=producer.batches.copy())
            for producer_id, producer in self._producers.items()
        }
        return table

    # --- forgetting ---------------------------------------------------------------------------

    def forget_idle(self, before_ms: int, now_ms: int) -> None:
        """Forgets producers without an open transaction that were last heard before `before_ms`.

        The time of one that was read back from the log is not known: it counts from now.
        """
        idle = []
        for producer_id, producer in self._producers.items():
            if not producer.used_ms:
                producer.used_ms = now_ms
            elif producer.used_ms < before_ms and producer_id not in self._open:
                idle.append(producer_id)
        for producer_id in idle:
            del self._producers[producer_id]

    # --- snapshots ----------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The table as bytes; `decode` reads it."""
        parts = [_HEAD.pack(self.next_offset, len(self._producers))]
        for producer_id, producer in self._producers.items():
            parts.append(
                _PRODUCER.pack(
                    producer_id,
                    producer.epoch,
                    producer.last_timestamp_ms,
                    producer.used_ms,
                    self._open.get(producer_id, -1),
                    producer.coordinator_epoch,
                    len(producer.batches),
                )
            )
            parts += [_BATCH.pack(*batch[2:7]) for batch in producer.batches]
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> "ProducerTable":
        """Raises CorruptionError; the caller then rebuilds the table from the log."""
        try:
            return cls._decode(data)
        except struct.error as error:
            raise CorruptionError(f"a snapshot of producers: {error}") from error

    @classmethod
    def _decode(cls, data: bytes) -> "ProducerTable":
        table, opened = cls(), []
        table.next_offset, producers = _HEAD.unpack_from(data)
        position = _HEAD.size
        for _ in range(producers):
            producer_id, epoch, timestamp_ms, used_ms, first, coordinator, count = _PRODUCER.unpack_from(
                data, position
            )
            position += _PRODUCER.size
            producer = _Producer(epoch, timestamp_ms, used_ms, coordinator)
            table._producers[producer_id] = producer
            if first >= 0:
                opened.append((first, producer_id))
            for _ in range(count):
                fields = _BATCH.unpack_from(data, position)
                producer.batches.append(ProducerBatch._make((producer_id, epoch, *fields, first >= 0)))
                position += _BATCH.size
            producer.next_sequence = (producer.last_sequence() + 1) % _SEQUENCES
        if position != len(data):
            raise CorruptionError(f"a snapshot of producers: {len(data)} bytes, {position} expected")
        table._open = {producer_id: first for first, producer_id in sorted(opened)}
        return table


def _check_epoch(producer: _Producer, producer_id: int, epoch: int) -> None:
    if epoch < producer.epoch:
        raise RequestError(
            f"producer {producer_id} has epoch {producer.epoch} by now, not {epoch};"
            " a newer instance took over, or its transaction was ended",
            code=INVALID_PRODUCER_EPOCH,
        )
