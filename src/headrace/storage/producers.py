"""Who writes to a partition: producers' epochs and sequence numbers, and open transactions.

Pure state, derived from the batches of the log and nothing else, so that it can
be rebuilt from them; a snapshot of it only saves time. The rules are Kafka's:

- A batch carries a producer id, an epoch and the sequence number of its first
  record. Within an epoch the numbers follow each other; a new epoch begins at 0.
- The last five batches of a producer are remembered. One of them sent again is
  not appended again: its producer gets the offset it got the first time.
- A transactional batch opens a transaction in this partition, if its producer has
  none open here; a marker closes it. Readers of committed records end before the
  first open one (the last stable offset) and are told which were aborted.
"""

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.errors import CorruptionError, RequestError
from headrace.records import BatchHeader

__all__ = ["AbortedTransaction", "Marker", "OpenTransaction", "ProducerTable", "Remembered"]

REMEMBERED_BATCHES = 5
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48

_SEQUENCES = 2**31
_VERSION = 1
_HEAD = struct.Struct(">HqII")
_PRODUCER = struct.Struct(">qhqqhB")
_BATCH = struct.Struct(">iiqq")
_ABORTED = struct.Struct(">qqq")


class Remembered(NamedTuple):
    """One of a producer's latest batches."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class Marker(NamedTuple):
    """The end of a transaction in one partition, as its control batch says."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool


class OpenTransaction(NamedTuple):
    """A transaction that has records here and no marker yet."""

    producer_id: int
    producer_epoch: int
    first_offset: int


class AbortedTransaction(NamedTuple):
    """Records of this producer from `first_offset` to `last_offset`, its marker, are void."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class _Producer:
    epoch: int
    last_timestamp_ms: int = -1
    first_open_offset: int | None = None
    coordinator_epoch: int = -1
    batches: deque[Remembered] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))

    def last_sequence(self) -> int | None:
        return self.batches[-1].last_sequence if self.batches else None


class ProducerTable:
    """The producers of one partition, up to `next_offset`. One thread."""

    def __init__(self) -> None:
        self.next_offset = 0
        self._producers: dict[int, _Producer] = {}
        self._aborted: list[AbortedTransaction] = []  # by last offset

    # --- appending ----------------------------------------------------------------------------

    def check(self, header: BatchHeader) -> Remembered | None:
        """What a producer's batch is: new (None), or one that was appended before.

        Raises RequestError with Kafka's code when its epoch or its sequence number
        is not one that may come next.
        """
        producer = self._producers.get(header.producer_id)
        if header.producer_id < 0 or producer is None:
            return None
        if header.producer_epoch < producer.epoch:
            raise RequestError(
                f"producer {header.producer_id} has epoch {producer.epoch} by now, not"
                f" {header.producer_epoch}; a newer instance took over",
                code=INVALID_PRODUCER_EPOCH,
            )
        if header.producer_epoch == producer.epoch:
            first, last = _sequences(header)
            for batch in producer.batches:
                if (batch.first_sequence, batch.last_sequence) == (first, last):
                    return batch
        self._check_order(header, producer)
        return None

    def _check_order(self, header: BatchHeader, producer: _Producer) -> None:
        if header.producer_epoch > producer.epoch:
            expected = 0
        else:
            last = producer.last_sequence()
            if last is None:
                return
            expected = (last + 1) % _SEQUENCES
        if header.base_sequence != expected:
            raise RequestError(
                f"producer {header.producer_id} sent sequence number {header.base_sequence},"
                f" {expected} is next",
                code=OUT_OF_ORDER_SEQUENCE_NUMBER,
            )
        if producer.first_open_offset is not None and not header.is_transactional:
            raise RequestError(
                f"producer {header.producer_id} has a transaction open here, and this batch is outside of it",
                code=INVALID_TXN_STATE,
            )

    def add(self, header: BatchHeader) -> None:
        """Takes in a stamped data batch."""
        self.next_offset = header.next_offset
        if header.producer_id < 0:
            return
        producer = self._of(header.producer_id, header.producer_epoch)
        producer.last_timestamp_ms = header.max_timestamp
        producer.batches.append(Remembered(*_sequences(header), header.base_offset, header.last_offset))
        if header.is_transactional and producer.first_open_offset is None:
            producer.first_open_offset = header.base_offset

    def end(self, marker: Marker, offset: int) -> None:
        """Takes in the marker at `offset`; where its transaction has no record, only the epoch moves."""
        self.next_offset = offset + 1
        producer = self._of(marker.producer_id, marker.producer_epoch)
        producer.coordinator_epoch = max(producer.coordinator_epoch, marker.coordinator_epoch)
        first, producer.first_open_offset = producer.first_open_offset, None
        if first is not None and not marker.commit:
            self._aborted.append(AbortedTransaction(marker.producer_id, first, offset))

    def _of(self, producer_id: int, epoch: int) -> _Producer:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer(epoch)
        elif epoch > producer.epoch:
            producer.epoch = epoch
            producer.batches.clear()
        return producer

    # --- reading ------------------------------------------------------------------------------

    def last_stable_offset(self) -> int:
        """Every transaction with a record below it has ended."""
        return min((each.first_offset for each in self.open_transactions()), default=self.next_offset)

    def open_transactions(self) -> list[OpenTransaction]:
        """By producer id."""
        return [
            OpenTransaction(producer_id, producer.epoch, producer.first_open_offset)
            for producer_id, producer in sorted(self._producers.items())
            if producer.first_open_offset is not None
        ]

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with a record that a reader of `start` to `end` (exclusive) may meet."""
        return [each for each in self._aborted if each.last_offset >= start and each.first_offset < end]

    # --- forgetting ---------------------------------------------------------------------------

    def expire(self, before_ms: int, log_start: int) -> None:
        """Forgets producers idle since `before_ms`, and aborted transactions below the log start."""
        idle = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.first_open_offset is None and 0 <= producer.last_timestamp_ms < before_ms
        ]
        for producer_id in idle:
            del self._producers[producer_id]
        self._aborted = [each for each in self._aborted if each.last_offset >= log_start]

    # --- snapshots ----------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The table as bytes; `decode` reads it."""
        parts = [_HEAD.pack(_VERSION, self.next_offset, len(self._producers), len(self._aborted))]
        for producer_id, producer in self._producers.items():
            first = -1 if producer.first_open_offset is None else producer.first_open_offset
            fixed = producer_id, producer.epoch, producer.last_timestamp_ms, first, producer.coordinator_epoch
            parts.append(_PRODUCER.pack(*fixed, len(producer.batches)))
            parts += [_BATCH.pack(*batch) for batch in producer.batches]
        parts += [_ABORTED.pack(*each) for each in self._aborted]
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
        table = cls()
        version, table.next_offset, producers, aborted = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise CorruptionError(f"a snapshot of producers in version {version}, not {_VERSION}")
        position = _HEAD.size
        for _ in range(producers):
            producer_id, epoch, timestamp, first, coordinator, count = _PRODUCER.unpack_from(data, position)
            position += _PRODUCER.size
            rows = _rows(_BATCH, data, position, count)
            batches = deque((Remembered(*each) for each in rows), REMEMBERED_BATCHES)
            position += count * _BATCH.size
            open_offset = None if first < 0 else first
            table._producers[producer_id] = _Producer(epoch, timestamp, open_offset, coordinator, batches)
        table._aborted = [AbortedTransaction(*each) for each in _rows(_ABORTED, data, position, aborted)]
        return table

    def __iter__(self) -> Iterator[tuple[int, int, int | None]]:
        """Producer id, epoch and last sequence number of each producer."""
        for producer_id, producer in self._producers.items():
            yield producer_id, producer.epoch, producer.last_sequence()


def _rows(form: struct.Struct, data: bytes, position: int, count: int) -> Iterable[tuple[int, ...]]:
    for number in range(count):
        yield form.unpack_from(data, position + number * form.size)


def _sequences(header: BatchHeader) -> tuple[int, int]:
    """First and last sequence number of a batch; they wrap around after 2^31 - 1."""
    first = header.base_sequence
    return first, (first + header.last_offset_delta) % _SEQUENCES
