"""One client's connection: frames in, answers out, in order.

Produce requests are pipelined: each is appended as it arrives and answered
when its sync is done, so that many of them share one. Every other request
runs alone, as in Kafka; it may wait (a long poll, a rebalance) and the ones
behind it wait too.

Theory of operation. A task of its own serves the connection: it takes what is queued
(`_work`), one after the other, and waits where that must be. While it has nothing to do
(`_at_rest`), a produce or fetch request need not be queued for it: it is served in the
callback that received it, a fetch's long poll ends in the callback of the commit that
brought it records, and neither costs a task's turn. A small one that is like the last of its
kind is not even copied before that: a reader who keeps up (`apis.follower`) and a batch that
came alone (`lane`) are served from the buffer they were received in. A batch that came just
before its reader's request is put off (`_early`) until the sockets have been looked at once
more. Whatever has to wait for something else on that way (the disk, a client that does not
read, a transaction's coordinator) is queued for the task in its place, and what comes
meanwhile is queued behind it.

Memory per connection: less than three small frames on the way in outside the shared budget,
one small commit that a reader missed, and what a client does not take of one or two windows
on the way out.
"""

import asyncio
import contextlib
import logging
import os
import struct
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, cast

from headrace.broker.access import MOST_SASL_BYTES, Session
from headrace.broker.apis.access import FAILURE_DELAY_S, raw_token
from headrace.broker.apis.follower import Follower
from headrace.broker.begun import Begun
from headrace.broker.lane import Lane
from headrace.broker.replies import Answer, Reply
from headrace.errors import CorruptionError
from headrace.kernels.batches import Outcome
from headrace.kernels.library import address_of
from headrace.storage import Extent
from headrace.wire import Api, FrameAssembler, MalformedError, name_of
from headrace.wire.framing import SIZE_BYTES, SMALL_FRAME_BYTES

if TYPE_CHECKING:
    from headrace.broker.apis.fetch import Attempt, Poll
    from headrace.broker.apis.produce import Repeatable
    from headrace.broker.server import Broker

__all__ = ["Connection"]

logger = logging.getLogger(__name__)

_api_and_version = struct.Struct(">hh").unpack_from

MOST_QUEUED_FRAMES = 64
PRODUCE, FETCH = int(Api.PRODUCE), int(Api.FETCH)
PRODUCE_NAME, FETCH_NAME = name_of(PRODUCE), name_of(FETCH)
BEFORE_LOGIN = (Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)
LONGEST_HEADER = 1024
SMALL_ANSWER_BYTES = 16 * 1024
TURN_BYTES = 256 * 1024  # of a large answer, before others have their turn
LONGEST_TURN_BYTES = 4 * 1024 * 1024  # the same, where it can be told that nobody waits for one


class ConnectionClosed(Exception):  # noqa: N818 - not an error: the client left
    """The connection ended while something was still to be sent."""


class _ReadAhead:
    """An extent whose first bytes, or all of them, were read already."""

    __slots__ = ("_extent", "_head", "bytes_read", "size_bytes")

    def __init__(self, head: bytes | bytearray, extent: Extent) -> None:
        self._head = head
        self._extent = extent
        self.size_bytes = extent.size_bytes
        self.bytes_read = 0  # for whoever asks before reading on

    def read_chunk(self, max_bytes: int) -> bytes | bytearray | None:
        head, self._head = self._head, b""
        return head or self._extent.read_chunk(max_bytes)

    def read_into(self, room: memoryview) -> int | None:
        head = self._head[: len(room)]
        if not head:
            return self._extent.read_into(room)
        room[: len(head)] = head
        self._head = self._head[len(head) :]
        return len(head)


class Connection(asyncio.BufferedProtocol):
    """Reads frames, has them answered, writes the answers."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._settings = broker.settings
        # What the task is to do: serve a frame, go on with a produce request, send an answer.
        self._work: deque[bytearray | Begun[Answer] | Reply] = deque()
        self._work_waiter: asyncio.Future[None] | None = None
        self._at_rest = False  # the task waits for work, nothing is queued, no poll is under way
        self._poll: tuple[Poll, bytearray, float] | None = None  # its request, and when its turn came
        # What was asked last; the next request is often the same (`wire.repeats`).
        self.last_fetch: Attempt | None = None
        self.last_produce: Repeatable | None = None
        self._follower: Follower | None = None
        self._asked_s = 0.0  # when the follower's turn came
        self._lane: Lane | None = None
        self._early: tuple[bytearray, float] | None = None  # a request put off, and when its turn came
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = False
        self._ending = "client"  # who or what ended the connection, for the metrics
        self._paused = False
        self._muted_until = 0.0
        self._transport: asyncio.Transport | None = None
        self._socket = -1  # its descriptor, where bytes may be written to it as they are
        self.task: asyncio.Task[None] | None = None
        # When each produce request's turn came, and its answer to be; oldest first.
        self._outbox: deque[tuple[float, Answer]] = deque()
        self._outbox_waiter: asyncio.Future[None] | None = None
        self.client_host = ""
        self.session: Session | None = None
        self.local_address: tuple[str, int] = ("", 0)
        self.moved_ms = broker.clock.monotonic_ms()
        self.frame_began_ms: int | None = None
        self._assembler = FrameAssembler(
            broker.scratch,
            max_bytes=self._settings.max_request_bytes,
            reserve=self._reserve,
            emit=self._emit,
            take=broker.frame_buffers.take,
        )

    # --- asyncio calls these ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if transport.get_extra_info("ssl_object") is None:
            self._socket = transport.get_extra_info("socket").fileno()
            self._transport.set_write_buffer_limits(high=0)  # what it holds is sent before more is added
        else:
            self._transport.set_write_buffer_limits(high=self._settings.fetch_window_bytes)
        peer = transport.get_extra_info("peername")
        self.client_host = str(peer[0]) if peer else ""
        here = transport.get_extra_info("sockname")
        self.local_address = (str(here[0]), int(here[1])) if here else ("", 0)
        self.session = self._broker.access.session(self.client_host, transport)
        if self.session is not None and not self.session.identified:
            self._assembler.bound(MOST_SASL_BYTES + LONGEST_HEADER, "before login")
        if not self._broker.admit(self):
            self.abort("too many connections (max_connections)", kind="refused")

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._assembler.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.moved_ms = self._broker.clock.monotonic_ms()
        if self._at_rest and self._assembler.is_whole(nbytes) and self._serve_again(nbytes - SIZE_BYTES):
            return
        try:
            self._assembler.received(nbytes)
        except MalformedError as error:
            self.abort(str(error))
        else:
            self._received()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._closed = True
        self._writable.set()
        self._wake()
        if self._poll is not None:
            self._poll[0].cancel()
            self._poll = None
        if self._follower is not None:
            self._follower.close()
            self._follower = None
        self._broker.dismiss(self, self._ending)
        if self.task is not None:
            self.task.cancel()  # a long poll or a parked join has nobody left to answer

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self.moved_ms = self._broker.clock.monotonic_ms()
        self._writable.set()

    # --- in -----------------------------------------------------------------------------------

    def abort(self, reason: str, *, kind: str = "malformed") -> None:
        """Closes at once; the reason goes to the log, its kind to the metrics."""
        if not self._closed and self._transport is not None:
            self._ending = kind
            logger.info("closing the connection from %s: %s", self.client_host, reason)
            self._transport.abort()

    def _received(self) -> None:
        """Notes whether a frame is under way, and whether more may come."""
        if not self._assembler.in_the_middle:
            self.frame_began_ms = None
        elif self.frame_began_ms is None:
            self.frame_began_ms = self.moved_ms
        if self._assembler.blocked:
            self._broker.request_memory.when_released(self._unblock)
            self._broker.reclaim()
        self._pause_or_resume()

    def _unblock(self) -> None:
        if not self._closed:
            self.moved_ms = self._broker.clock.monotonic_ms()
            self.frame_began_ms = None  # the time it waited for us is not the client's
            try:
                self._assembler.unblock()
            except MalformedError as error:
                self.abort(str(error))
            else:
                self._received()

    @property
    def holds_memory(self) -> bool:
        """Whether a large request has begun to arrive."""
        return self._assembler.reserved_bytes > 0

    @property
    def waits_for_memory(self) -> bool:
        """Whether it is we who do not receive."""
        return self._assembler.blocked

    def _pause_or_resume(self) -> None:
        full = self._assembler.blocked or len(self._work) >= MOST_QUEUED_FRAMES
        if self._closed or self._transport is None or full == self._paused:
            return
        self._paused = full
        if full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _reserve(self, size: int) -> bool:
        begins = not self._assembler.reserved_bytes
        return self._broker.request_memory.try_reserve(size, self, begins=begins)

    def _emit(self, frame: bytearray) -> None:
        api_key, version = _api_and_version(frame)
        if api_key != PRODUCE and len(frame) > self._settings.max_control_bytes:
            self._broker.release_frame(frame)
            raise MalformedError(f"a {name_of(api_key)} request of {len(frame)} bytes (max_control_bytes)")
        if not (self._at_rest and api_key <= FETCH and self._serve_at_once(frame, api_key, version)):
            self._queue(frame)

    def _queue(self, work: bytearray | Begun[Answer] | Reply) -> None:
        """Leaves it to the task, behind what is queued and under way."""
        self._work.append(work)
        follows = self._follower is not None and self._follower.waits
        if self._poll is None and self._early is None and not follows:
            self._wake()

    def _wake(self) -> None:
        self._at_rest = False
        if self._work_waiter is not None and not self._work_waiter.done():
            self._work_waiter.set_result(None)

    async def _next_work(self) -> bytearray | Begun[Answer] | Reply | None:
        """What is to be done next; None when the client has left."""
        while not self._work:
            if self._closed:
                return None
            self._at_rest = self.session is None  # who must be asked for permission goes the long way
            self._work_waiter = asyncio.get_running_loop().create_future()
            await self._work_waiter
        work = self._work.popleft()
        if self._paused:
            self._pause_or_resume()
        return work

    # --- serve again --------------------------------------------------------------------------

    def _serve_again(self, size: int) -> bool:
        """Serves a small request that is like the last one, where it was received; False if it cannot."""
        if self._outbox or not self._may_serve:
            return False
        broker = self._broker
        frame, address = broker.scratch[SIZE_BYTES : SIZE_BYTES + size], broker.scratch_at + SIZE_BYTES
        try:
            if frame[1] == FETCH:
                return self._fetch_again(frame, address)
            return frame[1] == PRODUCE and self._produce_again(frame, address)
        except Exception as error:
            self._break_off(error)
            return True

    def _fetch_again(self, frame: memoryview, address: int) -> bool:
        if self._follower is None or not self._follower.asks_again(frame, address):
            return False
        self._asked_s, self._at_rest = perf_counter(), False
        self._follower.tell_missed()
        return True

    def _produce_again(self, frame: memoryview, address: int) -> bool:
        lane, began = self._open_lane(), perf_counter()
        if lane is None:
            return False
        if self._take_lane(lane, frame, address, began):
            return True
        if lane.is_early:
            self._early, self._at_rest = (bytearray(frame), began), False
            later = asyncio.get_running_loop().call_soon
            later(later, self._produce_early)  # twice: the sockets are looked at in between
        return lane.is_early

    def _open_lane(self) -> Lane | None:
        last, lane = self.last_produce, self._lane
        if last is None or self.clear_socket() < 0:
            return None
        if lane is None or lane.last is not last:
            lane = self._lane = Lane(self._broker, last, self._socket)
        return lane

    def _take_lane(self, lane: Lane, frame: memoryview, address: int, began: float) -> bool:
        left = lane.take(frame, address)
        if left is None:
            return False
        if left and self._transport is not None:
            self._transport.write(left)
        self._broker.metrics.request_seconds.observe(perf_counter() - began, PRODUCE_NAME)
        return True

    def _produce_early(self) -> None:
        """Serves the request that was put off, before whatever was queued behind it."""
        early, self._early = self._early, None
        if early is None or self._closed:
            return
        try:
            if not self._serve_early(*early):
                self._work.appendleft(early[0])
        except Exception as error:
            self._break_off(error)
        else:
            self._go_on()

    def _serve_early(self, frame: bytearray, began: float) -> bool:
        lane = self._open_lane()
        if lane is not None and self._take_lane(lane, memoryview(frame), address_of(frame), began):
            return True
        _, version = _api_and_version(frame)
        return not self._work and self._may_serve and self._produce_at_once(frame, version)

    def _follow(self) -> None:
        """Somebody waits for records: the next request may be the same."""
        attempt = self.last_fetch
        if attempt is None or (self._follower is not None and self._follower.attempt is attempt):
            return
        if self._follower is not None:
            self._follower.close()
            self._follower = None
        if attempt.kept is not None:
            self._follower = Follower(self._broker, attempt, *attempt.kept, self)

    def clear_socket(self) -> int:
        """Its socket, if bytes may be written to it as they are, else -1."""
        clear = self._transport is not None and self._is_clear(self._transport)
        return self._socket if clear else -1

    def send_room(self, size: int, sent: int) -> None:
        """Sends the first bytes of the broker's room, of which so many are sent, as the follower's answer."""
        try:
            if sent < size and self._transport is not None:
                self._send(self._broker.room[sent:size], self._transport)
            self._broker.metrics.request_seconds.observe(perf_counter() - self._asked_s, FETCH_NAME)
        except Exception as error:
            self._break_off(error)
        else:
            self._go_on()

    def serve_otherwise(self, frame: bytearray) -> None:
        """Serves the follower's request the general way."""
        self._work.appendleft(frame)
        self._go_on()

    def _go_on(self) -> None:
        """What was waited for is over: the next request may be served."""
        if self._work:
            self._wake()
        else:
            self._at_rest = True

    # --- serve at once ------------------------------------------------------------------------

    @property
    def _may_serve(self) -> bool:
        """Whether nothing that its client did before must be waited for."""
        return not self._muted_until and self._writable.is_set()

    def _serve_at_once(self, frame: bytearray, api_key: int, version: int) -> bool:
        """Serves a produce or fetch request here and now; False if it must wait for something first."""
        if not self._may_serve:
            return False
        try:
            if api_key == PRODUCE:
                return self._produce_at_once(frame, version)
            return self._fetch_at_once(frame, version)
        except Exception as error:
            self._break_off(error)
            return True

    def _produce_at_once(self, frame: bytearray, version: int) -> bool:
        if len(self._outbox) >= self._settings.produce_pipeline:
            return False
        started = self._broker.start_produce(self, frame, version)
        if isinstance(started, Answer):
            self._expect(started)
        else:
            self._queue(started)
        return True

    def _fetch_at_once(self, frame: bytearray, version: int) -> bool:
        if self._outbox or len(frame) > SMALL_FRAME_BYTES:
            return False
        began = perf_counter()
        started = self._broker.start_fetch(self, frame, version, self._end_poll)
        if started is None:
            return False
        if isinstance(started, Reply):
            self._send_at_once(started, began)
        else:
            self._poll, self._at_rest = (started, frame, began), False
            self._follow()
        return True

    def _end_poll(self) -> None:
        """A long poll has its answer, or must ask the disk for it; then the next request may be served."""
        assert self._poll is not None
        (poll, frame, began), self._poll = self._poll, None
        try:
            reply = poll.taken()
            if reply is None:
                self._work.appendleft(frame)
            else:
                self._send_at_once(reply, began)
        except Exception as error:
            self._break_off(error)
        else:
            self._go_on()

    def _break_off(self, error: Exception) -> None:
        """What was served at once failed: nothing behind it is served any more."""
        self._at_rest = False
        if self.task is not None:
            self.task.cancel()
        self._end_after(error)

    def _send_at_once(self, reply: Reply, began: float) -> None:
        """Sends an answer whose records are few and in memory; others are left to the task."""
        self._broker.metrics.request_seconds.observe(perf_counter() - began, FETCH_NAME)
        if not self._put_small(reply):
            self._work.appendleft(reply)
            self._wake()
            return
        reply.release()
        self.mute(reply.throttle_ms)

    def _put_small(self, reply: Reply) -> bool:
        """Whether the answer was small, and its records in memory: it is sent then."""
        frame = reply.frame
        if int.from_bytes(frame[:4], "big") > SMALL_ANSWER_BYTES or self._transport is None:
            return False
        if not frame.deferred:
            self._send(frame, self._transport)
            return True
        extents = cast(list[tuple[int, Extent]], frame.deferred)
        chunks = [extent.read_chunk(extent.size_bytes, wait=False) or b"" for _, extent in extents]
        parts: list[bytes | bytearray | memoryview] = []
        position = 0
        for (place, extent), chunk in zip(extents, chunks, strict=True):
            if len(chunk) < extent.size_bytes:
                ahead = zip(extents, chunks, strict=True)
                frame.deferred = [(place, _ReadAhead(chunk, extent)) for (place, extent), chunk in ahead]
                return False
            parts += frame[position:place], chunk
            position = place
        parts.append(frame[position:])
        self._send(b"".join(parts), self._transport)
        return True

    # --- serve --------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Answers requests until the client leaves or breaks the protocol."""
        try:
            await self._answer_all()
        except (ConnectionClosed, asyncio.CancelledError):
            pass
        except Exception as error:
            self._end_after(error)
        finally:
            self._give_back()

    def _end_after(self, error: Exception) -> None:
        """Ends the connection for what went wrong in it."""
        if isinstance(error, MalformedError):
            self.abort(str(error))
        elif isinstance(error, CorruptionError):
            self.abort(f"damage on disk: {error}", kind="damage")
        else:
            logger.error("a request from %s failed", self.client_host, exc_info=error)
            self.abort("an internal error", kind="internal")

    def _give_back(self) -> None:
        self._broker.request_memory.release(self._assembler.reserved_bytes)
        self._assembler.abandon()
        while self._work:
            work = self._work.popleft()
            if isinstance(work, Reply):
                work.release()
            elif isinstance(work, Begun):
                work.close()
            else:
                self._broker.release_frame(work)

    async def _identify(self, session: Session) -> None:
        """Serves what is open to everybody until the client is known; anything else ends the connection."""
        try:
            async with asyncio.timeout(self._settings.receive_timeout_ms / 1000):
                while not session.identified:
                    frame = await self._next_work()
                    if not isinstance(frame, bytearray):
                        return
                    try:
                        reply = await self._login_step(session, frame)
                    finally:
                        self._broker.release_frame(frame)
                    await self._write(reply)
                    if session.refused:
                        self._end_politely()
        except TimeoutError:
            raise MalformedError("no login in time (receive_timeout_ms)") from None
        self._assembler.bound(self._settings.max_request_bytes)

    async def _login_step(self, session: Session, frame: bytearray) -> Reply:
        if session.raw_tokens:
            return await raw_token(self._broker, session, frame)
        api_key, version = _api_and_version(frame)
        if api_key not in BEFORE_LOGIN:
            await asyncio.sleep(FAILURE_DELAY_S)  # or clients that know no better come back at once
            raise MalformedError(f"{name_of(api_key)} before login")
        return await self._broker.answer(self, frame, api_key, version)

    def _end_politely(self) -> None:
        """Closes once what was written is sent."""
        self._ending = "login"
        if self._transport is not None:
            self._transport.close()
        raise ConnectionClosed

    async def _wait_identified(self) -> None:
        if self.session is not None and not self.session.identified:
            await self._identify(self.session)

    async def _answer_all(self) -> None:
        await self._wait_identified()
        while (work := await self._next_work()) is not None:
            if isinstance(work, Reply):
                await self._write(work)
                self.mute(work.throttle_ms)
            elif isinstance(work, Begun):
                self._expect(await work)
            else:
                await self._serve_frame(work)

    async def _serve_frame(self, frame: bytearray) -> None:
        if self._muted_until:
            await self._wait_unmuted()
        api_key, version = _api_and_version(frame)
        if api_key == PRODUCE:
            await self._wait_outbox(self._settings.produce_pipeline - 1)
            await self._writable.wait()  # a client that does not read its answers gets no more of them
            started = self._broker.start_produce(self, frame, version)
            # In a transaction the append may wait for the coordinator; those behind it wait too.
            self._expect(started if isinstance(started, Answer) else await started)
            return
        await self._wait_outbox(0)
        began = perf_counter()
        try:
            reply = await self._broker.answer(self, frame, api_key, version)
        finally:
            self._broker.release_frame(frame)
        self._broker.metrics.request_seconds.observe(perf_counter() - began, name_of(api_key))
        await self._write(reply)
        self.mute(reply.throttle_ms)
        if api_key == Api.SASL_HANDSHAKE:
            await self._wait_identified()

    def _expect(self, answer: Answer) -> None:
        """Sends the answer to a produce request once it is there and its turn has come."""
        self._outbox.append((perf_counter(), answer))
        answer.when_there(self._send_finished)

    def mute(self, throttle_ms: int) -> None:
        """Lets the next request wait, as its client was told: one that does not heed it waits here."""
        if throttle_ms:
            until = asyncio.get_running_loop().time() + throttle_ms / 1000
            self._muted_until = max(self._muted_until, until)

    async def _wait_unmuted(self) -> None:
        while self._muted_until:
            left = self._muted_until - asyncio.get_running_loop().time()
            if left <= 0:
                self._muted_until = 0
            else:
                await asyncio.sleep(left)

    async def _wait_outbox(self, most: int) -> None:
        """Waits until no more than so many produce requests are unanswered."""
        while len(self._outbox) > most and not self._closed:
            self._outbox_waiter = asyncio.get_running_loop().create_future()
            await self._outbox_waiter

    def _send_finished(self) -> None:
        """Sends the answers to produce requests that are there, in the order the requests came."""
        while self._outbox and self._outbox[0][1].is_there:
            began, answer = self._outbox.popleft()
            reply = answer.reply
            self._broker.metrics.request_seconds.observe(perf_counter() - began, PRODUCE_NAME)
            if reply is not None and not self._closed and self._transport is not None:
                self._send(reply.frame, self._transport)
                self.mute(reply.throttle_ms)
        if self._outbox_waiter is not None and not self._outbox_waiter.done():
            self._outbox_waiter.set_result(None)

    # --- out ----------------------------------------------------------------------------------

    async def _write(self, reply: Reply) -> None:
        """Sends an answer; deferred records are read window by window, as fast as the client takes them.

        The window is everybody's: what is in it is sent before anything is waited for.
        """
        frame = memoryview(reply.frame)
        position = filled = 0
        try:
            for place, deferred in reply.frame.deferred:
                filled = await self._fill(filled, frame[position:place])
                position = place
                if isinstance(deferred, Extent) and deferred.can_send:
                    filled = await self._send_extent(filled, deferred)
                filled = await self._fill_extent(filled, cast(Extent, deferred))
            filled = await self._fill(filled, frame[position:])
            await self._put(self._broker.window[:filled])
        finally:
            reply.release()

    async def _send_extent(self, filled: int, extent: Extent) -> int:
        """Sends records behind the `filled` bytes of the window; how many bytes it holds in the end.

        All of them, or as long as their way to the socket is a short one: the disk
        need not be waited for, and no bytes are left with the transport.
        """
        transport, others = self._transport, self._broker.loop_descriptor
        window, most = self._broker.wide_window, LONGEST_TURN_BYTES
        if others < 0:
            window, most = window._replace(octets=self._broker.window), TURN_BYTES
        while transport is not None and self._is_clear(transport):
            outcome, rest = extent.send(self._socket, window, filled, most, others)
            if outcome is Outcome.ENDED:
                return len(rest)
            if rest:
                await self._put(rest)
            filled = 0
            if outcome is Outcome.NOT_IN_MEMORY:
                break
            await asyncio.sleep(0)  # the others' turn, however fast this client reads
        return filled

    async def _fill_extent(self, filled: int, extent: Extent) -> int:
        """Adds what is left of the records to the window, which is sent whenever it is full."""
        window = self._broker.window
        left = extent.size_bytes - extent.bytes_read
        while left:
            if filled == len(window):
                await self._put(window)
                await asyncio.sleep(0)  # as above
                filled = 0
            count = extent.read_into(window[filled:])
            if count is None:  # not in the page cache: the disk must not hold up the others
                await self._put(window[:filled])
                filled = 0
                chunk = await self._broker.in_thread(extent.read_chunk, min(left, len(window)))
                assert chunk, "an extent ended before its size"
                await self._put(chunk)
                count = len(chunk)
            else:
                filled += count
            left -= count
        return filled

    async def _fill(self, filled: int, part: memoryview) -> int:
        """Adds part of an answer to the window, which holds `filled` bytes of it; how many it holds then."""
        window, size = self._broker.window, len(part)
        if filled + size > len(window):
            await self._put(window[:filled])
            filled = 0
            if size > len(window):
                await self._put(part)
                return 0
        window[filled : filled + size] = part
        return filled + size

    async def _put(self, part: bytes | bytearray | memoryview) -> None:
        """Sends a part of an answer; waits if the client takes so little of it that much would be kept."""
        if self._closed or self._transport is None:
            raise ConnectionClosed
        self._send(part, self._transport)
        if not self._writable.is_set():
            await self._writable.wait()
        if self._closed:
            raise ConnectionClosed

    def _send(self, part: bytes | bytearray | memoryview, transport: asyncio.Transport) -> None:
        """Sends what the client takes at once, and leaves a copy of the rest to the transport."""
        sent = 0
        if self._is_clear(transport):
            with contextlib.suppress(OSError):  # it takes nothing now, or is broken: the transport finds out
                sent = os.write(self._socket, part)
        if sent < len(part):
            transport.write(bytes(part[sent:]))

    def _is_clear(self, transport: asyncio.Transport) -> bool:
        """Whether bytes may be written to the socket as they are.

        Behind what the transport still has to send, it must do that itself; and its
        descriptor is no longer ours once it is closing.
        """
        return self._socket >= 0 and not transport.get_write_buffer_size() and not transport.is_closing()
