"""One client's connection: frames in, answers out, in order.

Produce requests are pipelined: each is appended as it arrives and answered
when its sync is done, so that many of them share one. Every other request
runs alone, as in Kafka; it may wait (a long poll, a rebalance) and the ones
behind it wait too.

Memory per connection: less than two small frames on the way in outside the
shared budget, and what a client does not take of one or two windows on the way out.
"""

import asyncio
import contextlib
import logging
import os
import struct
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, cast

from headrace.broker.access import MOST_SASL_BYTES, Session
from headrace.broker.apis.access import FAILURE_DELAY_S, raw_token
from headrace.broker.replies import Answer, Reply
from headrace.errors import CorruptionError
from headrace.storage import Extent
from headrace.wire import Api, FrameAssembler, MalformedError, name_of

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["Connection"]

logger = logging.getLogger(__name__)

_api_and_version = struct.Struct(">hh").unpack_from

MOST_QUEUED_FRAMES = 64
PRODUCE = name_of(Api.PRODUCE)
BEFORE_LOGIN = (Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)
LONGEST_HEADER = 1024


class ConnectionClosed(Exception):  # noqa: N818 - not an error: the client left
    """The connection ended while something was still to be sent."""


class Connection(asyncio.BufferedProtocol):
    """Reads frames, has them answered, writes the answers."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._settings = broker.settings
        self._frames: deque[bytearray] = deque()
        self._frame_waiter: asyncio.Future[None] | None = None
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
        self._transport.set_write_buffer_limits(high=self._settings.fetch_window_bytes)
        if transport.get_extra_info("ssl_object") is None:
            self._socket = transport.get_extra_info("socket").fileno()
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
        self._assemble(lambda: self._assembler.received(nbytes))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._closed = True
        self._writable.set()
        self._wake()
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

    def _assemble(self, step: Callable[[], None]) -> None:
        try:
            step()
        except MalformedError as error:
            self.abort(str(error))
            return
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
            self._assemble(self._assembler.unblock)

    @property
    def holds_memory(self) -> bool:
        """Whether a large request has begun to arrive."""
        return self._assembler.reserved_bytes > 0

    @property
    def waits_for_memory(self) -> bool:
        """Whether it is we who do not receive."""
        return self._assembler.blocked

    def _pause_or_resume(self) -> None:
        full = self._assembler.blocked or len(self._frames) >= MOST_QUEUED_FRAMES
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
        api_key, _ = _api_and_version(frame)
        if api_key != Api.PRODUCE and len(frame) > self._settings.max_control_bytes:
            self._broker.release_frame(frame)
            raise MalformedError(f"a {name_of(api_key)} request of {len(frame)} bytes (max_control_bytes)")
        self._frames.append(frame)
        self._wake()

    def _wake(self) -> None:
        if self._frame_waiter is not None and not self._frame_waiter.done():
            self._frame_waiter.set_result(None)

    async def _next_frame(self) -> bytearray | None:
        """The next frame, or None when the client has left."""
        while not self._frames:
            if self._closed:
                return None
            self._frame_waiter = asyncio.get_running_loop().create_future()
            await self._frame_waiter
        frame = self._frames.popleft()
        if self._paused:
            self._pause_or_resume()
        return frame

    # --- serve --------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Answers requests until the client leaves or breaks the protocol."""
        try:
            await self._answer_all()
        except (ConnectionClosed, asyncio.CancelledError):
            pass
        except MalformedError as error:
            self.abort(str(error))
        except CorruptionError as error:
            self.abort(f"damage on disk: {error}", kind="damage")
        except Exception:
            logger.exception("a request from %s failed", self.client_host)
            self.abort("an internal error", kind="internal")
        finally:
            self._give_back()

    def _give_back(self) -> None:
        self._broker.request_memory.release(self._assembler.reserved_bytes)
        self._assembler.abandon()
        while self._frames:
            self._broker.release_frame(self._frames.popleft())

    async def _identify(self, session: Session) -> None:
        """Serves what is open to everybody until the client is known; anything else ends the connection."""
        try:
            async with asyncio.timeout(self._settings.receive_timeout_ms / 1000):
                while not session.identified:
                    frame = await self._next_frame()
                    if frame is None:
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
        while (frame := await self._next_frame()) is not None:
            if self._muted_until:
                await self._wait_unmuted()
            api_key, version = _api_and_version(frame)
            if api_key == Api.PRODUCE:
                await self._wait_outbox(self._settings.produce_pipeline - 1)
                await self._writable.wait()  # a client that does not read its answers gets no more of them
                started = self._broker.start_produce(self, frame, version)
                # In a transaction the append may wait for the coordinator; those behind it wait too.
                answer = started if isinstance(started, Answer) else await started
                self._outbox.append((perf_counter(), answer))
                answer.when_there(self._send_finished)
                continue
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
            self._broker.metrics.request_seconds.observe(perf_counter() - began, PRODUCE)
            if reply is not None and not self._closed and self._transport is not None:
                self._transport.write(reply.frame)
                self.mute(reply.throttle_ms)
        if self._outbox_waiter is not None and not self._outbox_waiter.done():
            self._outbox_waiter.set_result(None)

    # --- out ----------------------------------------------------------------------------------

    async def _write(self, reply: Reply) -> None:
        """Sends an answer; deferred records are read window by window, as fast as the client takes them.

        The window is everybody's: what is in it is sent before anything is waited for.
        """
        frame, window = memoryview(reply.frame), self._broker.window
        position = filled = 0
        try:
            for place, deferred in reply.frame.deferred:
                filled = await self._fill(filled, frame[position:place])
                extent, position = cast(Extent, deferred), place
                left = extent.size_bytes
                while left:
                    if filled == len(window):
                        await self._put(window)
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
            filled = await self._fill(filled, frame[position:])
            await self._put(window[:filled])
        finally:
            reply.release()

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
        """Sends what the client takes at once; a copy of the rest is kept, and waited for if it is much."""
        transport = self._transport
        if self._closed or transport is None:
            raise ConnectionClosed
        sent = 0
        # Behind what the transport still has to send, it must do that itself; and its descriptor
        # is no longer ours once it is closing.
        if self._socket >= 0 and not transport.get_write_buffer_size() and not transport.is_closing():
            with contextlib.suppress(OSError):  # it takes nothing now, or is broken: the transport finds out
                sent = os.write(self._socket, part)
        if sent < len(part):
            transport.write(bytes(part[sent:]))
        if not self._writable.is_set():
            await self._writable.wait()
        if self._closed:
            raise ConnectionClosed
