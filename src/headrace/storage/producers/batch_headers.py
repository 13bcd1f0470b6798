"""What batch headers tell of producers, gathered on a walk and taken in afterwards."""

import struct
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from headrace.records import BATCH_OVERHEAD_BYTES, CONTROL_BIT, TRANSACTIONAL_BIT
from headrace.storage.producers.table import REMEMBERED_BATCHES, AppendedMarker, ProducerBatch, last_sequence

__all__ = ["PRODUCER_HEADER", "ProducerHeader", "ProducerHeaders", "RawProducerHeader"]

PRODUCER_HEADER = struct.Struct(">qi5sIhi8xqqhi")
"""The header of a batch, but for what nobody here looks at; the fields of `ProducerHeader`."""

RawProducerHeader = tuple[int, int, bytes, int, int, int, int, int, int, int]
"""A `ProducerHeader` as `PRODUCER_HEADER` unpacks it: the loops over millions of them make nothing else."""

_ATTRIBUTES: Final = 4
_PRODUCER_ID: Final = 7
_IN_TRANSACTION = CONTROL_BIT | TRANSACTIONAL_BIT
MOST = 100_000


class ProducerHeader(NamedTuple):
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


class ProducerHeaders:
    """The batches of a walk that count, in the order in which they do.

    Outside of transactions those are the last few of each producer, so that a long
    walk over many batches keeps few. Transactions are kept whole; with more of
    their batches and markers than `most`, nothing more is gathered (`is_whole`).
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = MOST if most is None else most
        self._ordered: list[tuple[RawProducerHeader, int]] = []
        self._latest: dict[int, deque[tuple[RawProducerHeader, int]]] = {}
        self.is_whole = True

    def note(self, header: RawProducerHeader, position: int) -> None:
        """Takes note of the batch at `position`; batches come in order."""
        producer_id = header[_PRODUCER_ID]
        if header[_ATTRIBUTES] & _IN_TRANSACTION:
            self._ordered.extend(self._latest.pop(producer_id, ()))
            self._ordered.append((header, position))
            if len(self._ordered) > self._most:
                self.is_whole = False
                self.forget()
        elif producer_id in self._latest:
            self._latest[producer_id].append((header, position))
        else:
            self._latest[producer_id] = deque([(header, position)], REMEMBERED_BATCHES)

    @property
    def in_transactions(self) -> int:
        """How many batches are kept in order."""
        return len(self._ordered)

    def forget(self) -> None:
        """Drops what was noted."""
        self._ordered, self._latest = [], {}

    def entries(
        self, first: int, read_marker: Callable[[int, int], AppendedMarker | None]
    ) -> Iterator[ProducerBatch | AppendedMarker]:
        """What to take in of batches from the offset `first` on, in order.

        `read_marker(position, size)` reads a control batch; None if it holds no marker.
        """
        for raw, position in chain(self._ordered, *self._latest.values()):
            header = ProducerHeader._make(raw)
            if header.base_offset < first:
                continue
            if not header.attributes & CONTROL_BIT:
                yield header.as_batch()
            elif (ended := read_marker(position, header.size_bytes)) is not None:
                yield ended
