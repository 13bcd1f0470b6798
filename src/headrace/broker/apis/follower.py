"""A reader who keeps up: the short way from a commit to whoever waits for it.

Theory of operation. A reader at the end of all its partitions asks the same after each
answer. The request is known by its bytes (`wire.repeats`), nothing is there yet, and so it
waits, for one of two things. A small commit in one of the partitions that brings exactly
what comes next for it is still in memory (`storage.newest`): the answer is written around
it and sent, in the callback of the commit. Or the time is over: the answer is that there is
nothing. Anything else, a large commit, a disk that must be asked, an error, is for the
general way (`fetch`), which gets the request as it came.

Between an answer and the next request it is away. A small commit that it misses is kept for
it, the last one only, and is its answer if the next request asks for exactly that.

Whatever is answered here is, byte for byte, what the general way would answer.
"""

import asyncio
from typing import TYPE_CHECKING, Protocol

from headrace.kernels.requests import STANDING_FIELDS
from headrace.storage import Newest, Topic
from headrace.wire.repeats import FetchShape

if TYPE_CHECKING:
    from headrace.broker.apis.fetch import Attempt
    from headrace.broker.server import Broker

__all__ = ["Follower", "Owner", "Place"]

EARLY_S = 0.001  # a timer may run so much before its time


class Owner(Protocol):
    """The connection of a follower."""

    def clear_socket(self) -> int:
        """Its socket, if bytes may be written to it as they are, else -1."""

    def send_room(self, size: int, sent: int) -> None:
        """Sends so many bytes of the broker's room as the answer, the first of which are sent already."""

    def serve_otherwise(self, frame: bytearray) -> None:
        """Serves the request the general way."""


class Place:
    """A follower at one of its partitions, which calls it when it has more."""

    __slots__ = ("follower", "number")

    def __init__(self, follower: "Follower", number: int) -> None:
        self.follower = follower
        self.number = number

    def __call__(self) -> None:
        if self.follower.waits:
            self.follower.wake(self.number)
        else:
            self.follower.miss(self.number)


class Follower:
    """One connection's reader who keeps up. Event loop only.

    It is told of commits until it is closed. While it `waits`, its owner serves nothing else.
    """

    def __init__(
        self, broker: "Broker", attempt: "Attempt", topic: Topic, shape: FetchShape, owner: Owner
    ) -> None:
        self.attempt = attempt
        self.again = shape.again
        self.waits = False
        self._missed: tuple[int, Newest] | None = None  # while it was away: the partition's place, and what
        self._broker = broker
        self._topic = topic
        self._owner = owner
        by_index = {part.index: part for part in attempt.parts}
        self._parts = [by_index[index] for index in shape.indexes]
        self._logs = [part.log for part in self._parts]
        self._places = [Place(self, number) for number in range(len(self._parts))]
        self._deadline_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        for part, place in zip(self._parts, self._places, strict=True):
            part.partition.on_records(place)

    def asks_again(self, frame: memoryview, address: int) -> bool:
        """Whether the request at that address is the same again; it waits then.

        For what comes, if it finds nothing. If it finds exactly what it missed, for `tell_missed`.
        """
        again, committed = self.again, self.attempt.committed
        missed, self._missed = self._missed, None
        if not again.matches(address, len(frame)) or not self._broker.topics.is_current(self._topic):
            return False
        offsets, standings, at = again.offsets, again.standings, 0
        for number, log in enumerate(self._logs):
            offset, start = offsets[number], log.start_offset
            if start > offset:
                return False
            if log.high_watermark != offset:
                if missed is None or missed[0] != number or not self._is_answer(number, missed[1]):
                    return False
                self._missed = missed
            else:
                if standings[at + 1] != offset or standings[at + 2] != offset or standings[at + 3] != start:
                    self._look_at(number)
                if committed and standings[at + 2] != offset:
                    return False
            at += STANDING_FIELDS
        again.keep(frame, committed=committed)
        self._wait()
        return True

    def miss(self, number: int, newest: Newest | None = None) -> None:
        """A partition has more while this is away: `newest`, or what the partition says."""
        newest = newest or self._parts[number].partition.newest
        self._missed = None if newest is None else (number, newest)

    def tell_missed(self) -> None:
        """Answers with what was missed, if the request found that."""
        missed, self._missed = self._missed, None
        if missed is not None:
            self._tell(*missed)

    def _look_at(self, number: int) -> None:
        """Notes where a partition stands."""
        log, at, standings = self._logs[number], number * STANDING_FIELDS, self.again.standings
        standings[at + 1] = log.high_watermark
        standings[at + 2] = log.last_stable_offset
        standings[at + 3] = log.start_offset

    def _wait(self) -> None:
        self.waits = True
        loop = asyncio.get_running_loop()
        self._deadline_s = loop.time() + self.attempt.wait_ms / 1000
        if self._timer is None:
            self._timer = loop.call_at(self._deadline_s, self._ring)

    def _ring(self) -> None:
        """One timer serves for many waits: each only moves the time at which something is to be done."""
        self._timer = None
        if not self.waits:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._deadline_s - EARLY_S:
            self._timer = loop.call_at(self._deadline_s, self._ring)
        else:
            self._end(-1, b"")

    def wake(self, number: int) -> None:
        """A partition has more, or so it says, while this waits."""
        part = self._parts[number]
        if part.partition.readable_end(committed=self.attempt.committed) == self.again.offsets[number]:
            return
        newest = part.partition.newest
        if newest is None or not self._is_answer(number, newest):
            self.waits = False
            self._owner.serve_otherwise(self.again.frame)
        else:
            self._tell(number, newest)

    def _is_answer(self, number: int, newest: Newest) -> bool:
        """Whether this, from one partition, is all that it has for the request, and an answer."""
        end = self._parts[number].partition.readable_end(committed=self.attempt.committed)
        is_next = newest.base_offset == self.again.offsets[number] and newest.next_offset == end
        return is_next and self.takes(number, len(newest.octets))

    def _tell(self, number: int, newest: Newest) -> None:
        self._look_at(number)
        self._count(number, newest.next_offset - newest.base_offset, len(newest.octets))
        self._end(number, newest.octets)

    def takes(self, number: int, size: int) -> bool:
        """Whether so many bytes from one partition are an answer, which there is room for."""
        broker, attempt = self._broker, self.attempt
        return (
            attempt.fits(self._parts[number], size) and self.again.has_room(size) and broker.quotas.are_none
        )

    def _count(self, number: int, records: int, size: int) -> None:
        partition = self._parts[number].partition
        partition.fetched_records += records
        partition.fetched_bytes += size

    def _end(self, number: int, records: bytes) -> None:
        self.waits = False
        self._owner.send_room(self.again.answer(self._broker.room_at, chosen=number, records=records), 0)

    def clear_socket(self) -> int:
        return self._owner.clear_socket()

    def told(self, number: int, records: int, size: int, answer: int, sent: int) -> None:
        """Its answer, with records of that partition, is in the broker's room, and so much of it is sent."""
        self.waits = False
        self._count(number, records, size)
        self._owner.send_room(answer, sent)

    def close(self) -> None:
        """Is told of nothing any more."""
        self.waits, self._missed = False, None
        if self._timer is not None:
            self._timer.cancel()
        for part, place in zip(self._parts, self._places, strict=True):
            part.partition.forget(place)
