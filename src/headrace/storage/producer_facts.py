"""What batch headers tell of producers, gathered on a walk and taken in afterwards."""

import struct
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from headrace.records import BATCH_OVERHEAD_BYTES
from headrace.records.header import CONTROL_BIT, TRANSACTIONAL_BIT
from headrace.storage.producers import REMEMBERED_BATCHES, Ended, ProducerBatch, last_sequence

__all__ = ["FACT", "Fact", "ProducerFacts", "RawFact"]

FACT = struct.Struct(">qi5sIhi8xqqhi")
"""The header of a batch, but for what nobody here looks at; the fields of `Fact`."""

RawFact = tuple[int, int, bytes, int, int, int, int, int, int, int]
"""A `Fact` as `FACT` unpacks it: the loops over millions of them make nothing else."""

_ATTRIBUTES: Final = 4
_PRODUCER_ID: Final = 7
_IN_TRANSACTION = CONTROL_BIT | TRANSACTIONAL_BIT
MOST = 100_000


class Fact(NamedTuple):
    """A batch that has a producer id."""

    base_offset: int
    batch_length: int
    signature: bytes  # leader epoch and magic
    crc: int
    attributes: int
    last_offset_delta: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + BATCH_OVERHEAD_BYTES

    def as_batch(self) -> ProducerBatch:
        return ProducerBatch(
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            last_sequence(self.base_sequence, self.last_offset_delta),
            self.base_offset,
            self.base_offset + self.last_offset_delta,
            self.max_timestamp,
            self.attributes & TRANSACTIONAL_BIT != 0,
        )


class ProducerFacts:
    """The batches of a walk that count, in the order in which they do.

    Outside of transactions those are the last few of each producer, so that a long
    walk over many batches keeps few. Transactions are kept whole; with more of
    their batches and markers than `most`, nothing more is gathered (`is_whole`).
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = MOST if most is None else most
        self._ordered: list[tuple[RawFact, int]] = []
        self._latest: dict[int, deque[tuple[RawFact, int]]] = {}
        self.is_whole = True

    def note(self, fact: RawFact, position: int) -> None:
        """Takes note of the batch at `position`; batches come in order."""
        producer_id = fact[_PRODUCER_ID]
        if fact[_ATTRIBUTES] & _IN_TRANSACTION:
            self._ordered.extend(self._latest.pop(producer_id, ()))
            self._ordered.append((fact, position))
            if len(self._ordered) > self._most:
                self.is_whole = False
                self.forget()
        elif producer_id in self._latest:
            self._latest[producer_id].append((fact, position))
        else:
            self._latest[producer_id] = deque([(fact, position)], REMEMBERED_BATCHES)

    @property
    def in_transactions(self) -> int:
        """How many batches are kept in order."""
        return len(self._ordered)

    def forget(self) -> None:
        """Drops what was noted."""
        self._ordered, self._latest = [], {}

    def entries(
        self, first: int, read_marker: Callable[[int, int], Ended | None]
    ) -> Iterator[ProducerBatch | Ended]:
        """What to take in of batches from the offset `first` on, in order.

        `read_marker(position, size)` reads a control batch; None if it holds no marker.
        """
        for raw, position in chain(self._ordered, *self._latest.values()):
            fact = Fact._make(raw)
            if fact.base_offset < first:
                continue
            if not fact.attributes & CONTROL_BIT:
                yield fact.as_batch()
            elif (ended := read_marker(position, fact.size_bytes)) is not None:
                yield ended
