"""The fast path: produce and fetch requests served in the callback that received them.

Theory of operation. The general path is the connection's task, which takes one request after
the other and waits where that must be; it serves everything. While it has nothing to do, a
produce or fetch request need not be queued for it. It is offered here first (`take`), and
there is one of four ways for it, the shortest first:

- A small request that is like the last of its kind is served from the buffer it was received
  in: a batch that came alone by `lane`, the fetch of a reader who keeps up by `follower`.
- A batch that came just before its reader's request is held until the sockets have been
  looked at once more, and then tries its lane again.
- A produce request is appended, and answered when it is synced (`Pipeline`).
- A fetch is answered, or held until a commit brings it records or its time is over.

What cannot be served without waiting for something else, the disk, a client that does not
read, a coordinator, leaves for the task (`FastPathOwner.leave`), before everything queued behind it.

The promise: a request gets the answer, byte for byte, that the general path would give it,
and leaves the same behind in the log.
"""

import asyncio
import struct
from time import perf_counter
from typing import Protocol, TypeAlias

from headrace.broker.apis.answers import Begun, DeferredReply, Reply
from headrace.broker.apis.records import Poll
from headrace.broker.connection.follower import Follower
from headrace.broker.connection.lane import Lane
from headrace.broker.connection.requests import (
    FETCH,
    FETCH_NAME,
    PRODUCE,
    PRODUCE_NAME,
    Pipeline,
    Requests,
)
from headrace.broker.connection.sending import Sender
from headrace.broker.connection.shared import Shared
from headrace.kernels import address_of
from headrace.wire import SMALL_FRAME_BYTES

__all__ = ["FastPath", "FastPathOwner", "Work"]

VERSION_AT = 2  # in every request
_version_in = struct.Struct(">h").unpack_from

Work: TypeAlias = bytearray | Begun[DeferredReply] | Reply
"""What the task is to do: serve a request, go on with a produce request, or send an answer."""


class FastPathOwner(Protocol):
    """The connection, as its fast path sees it."""

    @property
    def has_work(self) -> bool:
        """Whether something is queued for the task."""

    def hold(self) -> None:
        """A request waits for something; what comes meanwhile is queued. `leave` follows."""

    def leave(self, rest: Work | None) -> None:
        """The request is over, or `rest` is what the task does with it, before everything queued."""

    def fail(self, error: Exception) -> None:
        """Serving the request failed: nothing behind it is served any more."""


class FastPath:
    """Of one connection whose client needs no permission. Event loop only."""

    __slots__ = (
        *("_asked_s", "_follower", "_lane", "_most_unanswered", "_owner", "_pipeline", "_poll"),
        *("_postponed", "_requests", "_sender", "_shared", "_unanswered"),
    )

    def __init__(
        self, shared: Shared, requests: Requests, sender: Sender, pipeline: Pipeline, owner: FastPathOwner
    ) -> None:
        self._shared = shared
        self._requests = requests
        self._sender = sender
        self._pipeline = pipeline
        self._unanswered = pipeline.unanswered
        self._most_unanswered = shared.settings.produce_pipeline
        self._owner = owner
        self._lane: Lane | None = None
        self._follower: Follower | None = None
        self._asked_s = 0.0  # when the follower's turn came
        self._poll: tuple[Poll, bytearray, float] | None = None  # its request, and when its turn came
        self._postponed: tuple[bytearray, float] | None = None  # a request, and when its turn came

    def take(self, frame: memoryview | bytearray, address: int = 0) -> bool:
        """Serves or holds a request; False if the general path must, and nothing has been done then.

        With an `address` the request lies there and nowhere else, and came alone: it is
        copied only if it is held. It may be offered again without one.
        """
        if self._requests.muted_until or not self._sender.writable.is_set():
            return False  # what its client did before must be waited for
        try:
            if address:
                return self._take_in_place(frame, address)
            assert isinstance(frame, bytearray)
            if frame[1] == PRODUCE:
                return self._take_produce(frame)
            return self._take_fetch(frame)
        except Exception as error:
            self._owner.fail(error)
            return True

    def close(self) -> None:
        """The connection is gone: answers nothing any more."""
        self._postponed = None
        if self._poll is not None:
            self._poll[0].cancel()
            self._poll = None
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    # --- where it was received ----------------------------------------------------------------

    def _take_in_place(self, frame: memoryview | bytearray, address: int) -> bool:
        if self._unanswered:
            return False
        assert isinstance(frame, memoryview)
        if frame[1] == PRODUCE:
            return self._produce_in_place(frame, address)
        return frame[1] == FETCH and self._fetch_in_place(frame, address)

    def _fetch_in_place(self, frame: memoryview, address: int) -> bool:
        if self._follower is None or not self._follower.takes_up(frame, address):
            return False
        self._asked_s = perf_counter()
        self._owner.hold()
        self._follower.answer_missed()
        return True

    def _produce_in_place(self, frame: memoryview, address: int) -> bool:
        lane, began = self._open_lane(), perf_counter()
        if lane is None:
            return False
        if self._take_lane(lane, frame, address, began):
            return True
        if lane.is_early:
            self._postpone(bytearray(frame), began)
        return lane.is_early

    def _open_lane(self) -> Lane | None:
        last, lane, socket = self._requests.last_produce, self._lane, self._sender.clear_socket()
        if last is None or socket < 0:
            return None
        if lane is None or lane.last is not last:
            lane = self._lane = Lane(self._shared, last, socket)
        return lane

    def _take_lane(self, lane: Lane, frame: memoryview, address: int, began: float) -> bool:
        left = lane.take(frame, address)
        if left is None:
            return False
        if left:
            self._sender.leave_to_transport(left)
        self._shared.metrics.request_seconds.observe(perf_counter() - began, PRODUCE_NAME)
        return True

    # --- a batch that came before its reader's request ----------------------------------------

    def _postpone(self, frame: bytearray, began: float) -> None:
        self._postponed = frame, began
        self._owner.hold()
        later = asyncio.get_running_loop().call_soon
        later(later, self._resume)  # twice: the sockets are looked at in between

    def _resume(self) -> None:
        """Serves the request that was postponed, before everything queued behind it."""
        postponed, self._postponed = self._postponed, None
        if postponed is None:  # the connection is gone
            return
        try:
            rest = self._serve_postponed(*postponed)
        except Exception as error:
            self._owner.fail(error)
        else:
            self._owner.leave(rest)

    def _serve_postponed(self, frame: bytearray, began: float) -> Work | None:
        lane = self._open_lane()
        if lane is not None and self._take_lane(lane, memoryview(frame), address_of(frame), began):
            return None
        may_serve = not self._requests.muted_until and self._sender.writable.is_set()
        if self._owner.has_work or not may_serve or len(self._unanswered) >= self._most_unanswered:
            return frame
        return self._append(frame)

    # --- produce ------------------------------------------------------------------------------

    def _take_produce(self, frame: bytearray) -> bool:
        if len(self._unanswered) >= self._most_unanswered:
            return False
        rest = self._append(frame)
        if rest is not None:
            self._owner.leave(rest)
        return True

    def _append(self, frame: bytearray) -> Begun[DeferredReply] | None:
        """Appends what the request carries; what is left to do if something must be waited for first."""
        (version,) = _version_in(frame, VERSION_AT)
        started = self._requests.start_produce(frame, version)
        if isinstance(started, Begun):
            return started
        self._pipeline.add(started)
        return None

    # --- fetch --------------------------------------------------------------------------------

    def _take_fetch(self, frame: bytearray) -> bool:
        if self._unanswered or len(frame) > SMALL_FRAME_BYTES:
            return False
        began = perf_counter()
        (version,) = _version_in(frame, VERSION_AT)
        started = self._requests.start_fetch(frame, version, self._end_poll)
        if started is None:
            return False
        if isinstance(started, Reply):
            rest = self._send(started, began)
            if rest is not None:
                self._owner.leave(rest)
        else:
            self._poll = started, frame, began
            self._owner.hold()
            self._follow()
        return True

    def _end_poll(self) -> None:
        """A long poll has its answer, or must read the disk for it."""
        assert self._poll is not None
        (poll, frame, began), self._poll = self._poll, None
        try:
            reply = poll.taken()
            rest: Work | None = frame if reply is None else self._send(reply, began)
        except Exception as error:
            self._owner.fail(error)
        else:
            self._owner.leave(rest)

    def _send(self, reply: Reply, began: float) -> Reply | None:
        """Sends an answer whose records are few and in memory; others are the task's."""
        self._shared.metrics.request_seconds.observe(perf_counter() - began, FETCH_NAME)
        if not self._sender.send_small(reply):
            return reply
        reply.release()
        self._requests.mute(reply.throttle_ms)
        return None

    # --- a reader who keeps up ----------------------------------------------------------------

    def _follow(self) -> None:
        """The fetch waits for records: the next one may be the same."""
        attempt = self._requests.last_fetch
        if attempt is None or (self._follower is not None and self._follower.attempt is attempt):
            return
        if self._follower is not None:
            self._follower.close()
            self._follower = None
        if attempt.kept is not None:
            self._follower = Follower(self._shared, attempt, *attempt.kept, self)

    def clear_socket(self) -> int:
        """The follower's socket, if bytes may be written to it as they are, else -1."""
        return self._sender.clear_socket()

    def send_room(self, size: int, sent: int) -> None:
        """Sends the first bytes of the shared room, of which so many are sent, as the follower's answer."""
        try:
            if sent < size:
                self._sender.send(self._shared.buffers.room[sent:size])
            self._shared.metrics.request_seconds.observe(perf_counter() - self._asked_s, FETCH_NAME)
        except Exception as error:
            self._owner.fail(error)
        else:
            self._owner.leave(None)

    def serve_otherwise(self, frame: bytearray) -> None:
        """Has the task serve the follower's request."""
        self._owner.leave(frame)
