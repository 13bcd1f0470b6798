"""A reader who keeps up: the short way from a commit to the reader that waits for it.

Theory of operation. A reader at the end of all its partitions asks the same after each
answer. The request is known by its bytes (`wire.repeats`), nothing is there yet, and so it
waits, for one of two things. A small commit in one of the partitions that brings exactly
what comes next for it is still in memory (`storage.newest`): the answer is written around
it and sent, in the callback of the commit. Or the time is over: the answer is that there is
nothing. Anything else, a large commit, a disk that must be read, an error, is for the
general path (`apis.fetch`), which gets the request as it came.

Between an answer and the next request it is away. A small commit that it misses is kept for
it, the last one only, and is its answer if the next request asks for exactly that.

Whatever is answered here is, byte for byte, what the general path would answer.
"""

import asyncio
from typing import Protocol

from headrace.broker.apis.records import Attempt
from headrace.broker.connection.shared import Shared
from headrace.kernels import STANDING_FIELDS
from headrace.storage import FreshBatches, Topic
from headrace.wire import FetchShape

__all__ = ["Follower", "FollowerOwner", "WatchedPartition"]

EARLY_S = 0.001  # a timer may run so much before its time


class FollowerOwner(Protocol):
    """What sends a follower's answers."""

    def clear_socket(self) -> int:
        """Its socket, if bytes may be written to it as they are, else -1."""

    def send_room(self, size: int, sent: int) -> None:
        """Sends so many bytes of the shared room as the answer, the first of which are sent already."""

    def serve_otherwise(self, frame: bytearray) -> None:
        """Has the general path serve the request."""


class WatchedPartition:
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

    It hears of commits until it is closed. While it `waits`, its connection serves nothing else.
    """

    def __init__(
        self, shared: Shared, attempt: Attempt, topic: Topic, shape: FetchShape, owner: FollowerOwner
    ) -> None:
        self.attempt = attempt
        self.again = shape.again
        self.waits = False
        # While it was away: the partition's place, and what.
        self._missed: tuple[int, FreshBatches] | None = None
        self._topics = shared.topics
        self._quotas = shared.quotas
        self._room_at = shared.buffers.room_at
        self._topic = topic
        self._owner = owner
        by_index = {part.index: part for part in attempt.parts}
        self._parts = [by_index[index] for index in shape.indexes]
        self._logs = [part.log for part in self._parts]
        self._places = [WatchedPartition(self, number) for number in range(len(self._parts))]
        self._deadline_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        for part, place in zip(self._parts, self._places, strict=True):
            part.partition.on_records(place)

    def takes_up(self, frame: memoryview, address: int) -> bool:
        """Whether the request at that address is the same again; it waits then.

        For what comes, if it finds nothing. If it finds exactly what it missed, for `answer_missed`.
        """
        again, committed = self.again, self.attempt.committed
        missed, self._missed = self._missed, None
        if not again.matches(address, len(frame)) or not self._topics.is_current(self._topic):
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

    def miss(self, number: int, newest: FreshBatches | None = None) -> None:
        """A partition has more while this is away: `newest`, or what the partition says."""
        newest = newest or self._parts[number].partition.newest
        self._missed = None if newest is None else (number, newest)

    def answer_missed(self) -> None:
        """Answers with what was missed, if the request found that."""
        missed, self._missed = self._missed, None
        if missed is not None:
            self._answer(*missed)

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
            self._answer(number, newest)

    def _is_answer(self, number: int, newest: FreshBatches) -> bool:
        """Whether this, from one partition, is all that it has for the request, and an answer."""
        end = self._parts[number].partition.readable_end(committed=self.attempt.committed)
        is_next = newest.base_offset == self.again.offsets[number] and newest.next_offset == end
        return is_next and self.fits(number, len(newest.octets))

    def _answer(self, number: int, newest: FreshBatches) -> None:
        self._look_at(number)
        self._count(number, newest.next_offset - newest.base_offset, len(newest.octets))
        self._end(number, newest.octets)

    def fits(self, number: int, size: int) -> bool:
        """Whether so many bytes from one partition are an answer, which there is room for."""
        fits = self.attempt.fits(self._parts[number], size)
        return fits and self.again.has_room(size) and self._quotas.are_none

    def _count(self, number: int, records: int, size: int) -> None:
        partition = self._parts[number].partition
        partition.fetched_records += records
        partition.fetched_bytes += size

    def _end(self, number: int, records: bytes) -> None:
        self.waits = False
        self._owner.send_room(self.again.answer(self._room_at, chosen=number, records=records), 0)

    def clear_socket(self) -> int:
        return self._owner.clear_socket()

    def answered(self, number: int, records: int, size: int, answer: int, sent: int) -> None:
        """Its answer, with records of that partition, is in the shared room, and so much of it is sent."""
        self.waits = False
        self._count(number, records, size)
        self._owner.send_room(answer, sent)

    def close(self) -> None:
        """Hears of nothing any more."""
        self.waits, self._missed = False, None
        if self._timer is not None:
            self._timer.cancel()
        for part, place in zip(self._parts, self._places, strict=True):
            part.partition.forget(place)
