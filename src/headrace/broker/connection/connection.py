"""One client's connection: frames in, answers out, in order.

Produce requests are pipelined: each is appended as it arrives and answered when its sync is
done, so that many of them share one. Every other request runs alone, as in Kafka; it may
wait (a long poll, a rebalance) and the ones behind it wait too.

Theory of operation. A task of its own serves the connection: it takes what is queued, one
after the other, and waits where that must be. While it has nothing to do, produce and fetch
requests are offered to the fast path first (`fast_path`), which serves them in the callback
that received them. `states` says who serves what when.

Memory per connection: less than three small frames on the way in outside the shared budget,
one small commit that a reader missed, and what a client does not take of one or two windows
on the way out.
"""

import asyncio
import logging
import struct
from collections import deque
from time import perf_counter
from typing import cast

from headrace.broker.access import MOST_SASL_BYTES, ClientSession
from headrace.broker.apis.answers import Begun, Reply
from headrace.broker.connection.fast_path import FastPath, Work
from headrace.broker.connection.login import LoginEnded, wait_identified
from headrace.broker.connection.requests import FETCH, PRODUCE, Pipeline, Requests
from headrace.broker.connection.sending import ConnectionClosed, Sender
from headrace.broker.connection.shared import Shared
from headrace.broker.connection.states import NEXT, ConnectionEvent, ConnectionState
from headrace.errors import CorruptionError, DiskError
from headrace.wire import SIZE_BYTES, Api, FrameAssembler, MalformedError, name_of

__all__ = ["ServedConnection"]

logger = logging.getLogger(__name__)

_api_and_version = struct.Struct(">hh").unpack_from

# As names of this module: to look them up in their class takes as long as to look at a request.
LOGIN, TASK, IDLE, HELD, CLOSED = (
    ConnectionState.LOGIN,
    ConnectionState.TASK,
    ConnectionState.IDLE,
    ConnectionState.HELD,
    ConnectionState.CLOSED,
)
DRAINED, QUEUED, TAKEN, RELEASED = (
    ConnectionEvent.DRAINED,
    ConnectionEvent.QUEUED,
    ConnectionEvent.TAKEN,
    ConnectionEvent.RELEASED,
)

SASL_HANDSHAKE = int(Api.SASL_HANDSHAKE)
MOST_QUEUED_FRAMES = 64
LONGEST_HEADER = 1024


class ServedConnection(asyncio.BufferedProtocol):
    """Reads frames, has them answered, writes the answers."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._settings = shared.settings
        self._clock = shared.clock
        self._memory = shared.memory
        self._requests = Requests(shared)
        self._work: deque[Work] = deque()
        self._waiter: asyncio.Future[None] | None = None  # the task waits for work
        self._ending = "client"  # who or what ended the connection, for the metrics
        self._paused = False
        self._scratch, self._scratch_at = shared.buffers.scratch, shared.buffers.scratch_at
        self._transport: asyncio.Transport
        self._sender: Sender
        self._pipeline: Pipeline
        self._fast_path: FastPath
        self.state: ConnectionState = TASK
        self.task: asyncio.Task[None] | None = None
        self.moved_ms = self._clock.monotonic_ms()
        self.frame_began_ms: int | None = None
        self._assembler = FrameAssembler(
            self._scratch,
            max_bytes=self._settings.max_request_bytes,
            reserve=self._reserve,
            emit=self._emit,
            take=self._memory.take_buffer,
        )

    # --- asyncio calls these ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        shared, requests = self._shared, self._requests
        self._sender = Sender(self._transport, shared.buffers, shared.loop_load, shared.threads)
        self._pipeline = Pipeline(requests, self._sender, shared.metrics)
        self._fast_path = FastPath(shared, requests, self._sender, self._pipeline, self)
        peer = transport.get_extra_info("peername")
        requests.client_host = str(peer[0]) if peer else ""
        here = transport.get_extra_info("sockname")
        requests.local_address = (str(here[0]), int(here[1])) if here else ("", 0)
        requests.session = shared.access.session(requests.client_host, transport)
        if requests.session is not None and not requests.session.identified:
            self.state = LOGIN
            self._assembler.bound(MOST_SASL_BYTES + LONGEST_HEADER, "before login")
        if not shared.connections.admit(self):
            self.abort("too many connections (max_connections)", kind="refused")

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._assembler.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.moved_ms = self._clock.monotonic_ms()
        if (
            self.state is IDLE
            and self._assembler.is_whole(nbytes)
            and self._fast_path.take(self._scratch[SIZE_BYTES:nbytes], self._scratch_at + SIZE_BYTES)
        ):
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
        self.state = NEXT[self.state][ConnectionEvent.LOST]
        self._sender.close()
        self._pipeline.close()
        self._fast_path.close()
        self._wake()
        self._shared.connections.dismiss(self, self._ending)
        if self.task is not None:
            self.task.cancel()  # a long poll or a parked join has nobody left to answer

    def pause_writing(self) -> None:
        self._sender.pause()

    def resume_writing(self) -> None:
        self.moved_ms = self._clock.monotonic_ms()
        self._sender.resume()

    # --- the other connections ask for these --------------------------------------------------

    @property
    def number(self) -> int:
        """No other connection of the time has the same."""
        return self._requests.number

    @property
    def session(self) -> ClientSession | None:
        """Who the client is; None where nobody needs permission."""
        return self._requests.session

    @property
    def holds_memory(self) -> bool:
        """Whether a large request has begun to arrive."""
        return self._assembler.reserved_bytes > 0

    @property
    def waits_for_memory(self) -> bool:
        """Whether it is we who do not receive."""
        return self._assembler.blocked

    def abort(self, reason: str, *, kind: str = "malformed") -> None:
        """Closes at once; the reason goes to the log, its kind to the metrics."""
        if self.state is not CLOSED:
            self._ending = kind
            logger.info("closing the connection from %s: %s", self._requests.client_host, reason)
            self._transport.abort()

    # --- in -----------------------------------------------------------------------------------

    def _received(self) -> None:
        """Notes whether a frame is under way, and whether more may come."""
        if not self._assembler.in_the_middle:
            self.frame_began_ms = None
        elif self.frame_began_ms is None:
            self.frame_began_ms = self.moved_ms
        if self._assembler.blocked:
            self._memory.when_released(self._unblock)
            self._shared.connections.reclaim()
        self._pause_or_resume()

    def _unblock(self) -> None:
        if self.state is not CLOSED:
            self.moved_ms = self._clock.monotonic_ms()
            self.frame_began_ms = None  # the time it waited for us is not the client's
            try:
                self._assembler.unblock()
            except MalformedError as error:
                self.abort(str(error))
            else:
                self._received()

    def _pause_or_resume(self) -> None:
        full = self._assembler.blocked or len(self._work) >= MOST_QUEUED_FRAMES
        if self.state is CLOSED or full == self._paused:
            return
        self._paused = full
        if full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _reserve(self, size: int) -> bool:
        begins = not self._assembler.reserved_bytes
        return self._memory.try_reserve(size, self, begins=begins)

    def _emit(self, frame: bytearray) -> None:
        api_key, _ = _api_and_version(frame)
        if api_key != PRODUCE and len(frame) > self._settings.max_control_bytes:
            self._memory.release_frame(frame)
            raise MalformedError(f"a {name_of(api_key)} request of {len(frame)} bytes (max_control_bytes)")
        may_take = self.state is IDLE and 0 <= api_key <= FETCH
        if not (may_take and self._fast_path.take(frame)):
            self._work.append(frame)
            self._queued()

    # --- work for the task --------------------------------------------------------------------

    def _queued(self) -> None:
        self.state = state = NEXT[self.state][QUEUED]
        if state is not HELD:
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _next_work(self) -> Work | None:
        """What is to be done next; None when the client has left."""
        while not self._work:
            if self.state is CLOSED:
                return None
            if self.session is None:  # what needs permission is the task's
                self.state = NEXT[self.state][DRAINED]
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        work = self._work.popleft()
        if self._paused:
            self._pause_or_resume()
        return work

    # --- the fast path calls these ------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether something is queued for the task."""
        return bool(self._work)

    def hold(self) -> None:
        """A request waits for something; what comes meanwhile is queued."""
        self.state = NEXT[self.state][TAKEN]

    def leave(self, rest: Work | None) -> None:
        """The request is over, or `rest` is what the task does with it, before everything queued."""
        if self.state is HELD:
            self.state = NEXT[self.state][RELEASED]
        if rest is not None:
            self._work.appendleft(rest)
        if self._work:
            self._queued()

    def fail(self, error: Exception) -> None:
        """Serving a request failed: nothing behind it is served any more."""
        if self.task is not None:
            self.task.cancel()
        self._end_after(error)

    # --- serve --------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Answers requests until the client leaves or breaks the protocol."""
        try:
            await self._wait_identified()
            while (work := await self._next_work()) is not None:
                if isinstance(work, bytearray):
                    await self._serve_frame(work)
                elif isinstance(work, Begun):
                    self._pipeline.add(await work)
                else:
                    await self._sender.send_reply(work)
                    self._requests.mute(work.throttle_ms)
        except (ConnectionClosed, asyncio.CancelledError):
            pass
        except LoginEnded as ended:
            self._end_login(ended.reason)
        except Exception as error:
            self._end_after(error)
        finally:
            self._give_back()

    async def _serve_frame(self, frame: bytearray) -> None:
        if self._requests.muted_until:
            await self._requests.wait_unmuted()
        api_key, version = _api_and_version(frame)
        if api_key == PRODUCE:
            await self._serve_produce(frame, version)
            return
        await self._pipeline.wait(0)
        began = perf_counter()
        try:
            reply = await self._requests.answer(frame, api_key, version)
        finally:
            self._memory.release_frame(frame)
        self._shared.metrics.request_seconds.observe(perf_counter() - began, name_of(api_key))
        await self._sender.send_reply(reply)
        self._requests.mute(reply.throttle_ms)
        if api_key == SASL_HANDSHAKE:
            await self._wait_identified()

    async def _serve_produce(self, frame: bytearray, version: int) -> None:
        await self._pipeline.wait(self._settings.produce_pipeline - 1)
        await self._sender.writable.wait()  # a client that does not read its answers gets no more of them
        started = self._requests.start_produce(frame, version)
        # In a transaction the append may wait for the coordinator; those behind it wait too.
        self._pipeline.add(await started if isinstance(started, Begun) else started)

    async def _wait_identified(self) -> None:
        session = self.session
        if session is None or session.identified:
            return
        if self.state is TASK:
            self.state = NEXT[self.state][ConnectionEvent.LOGIN_BEGAN]
        await wait_identified(self._shared, session, self._requests, self._sender, self._next_work)
        if session.identified:
            self.state = NEXT[self.state][ConnectionEvent.IDENTIFIED]
            self._assembler.bound(self._settings.max_request_bytes)

    # --- the end ------------------------------------------------------------------------------

    def _end_login(self, reason: str | None) -> None:
        """Closes at once for a reason; without one, once what was written is sent."""
        if reason is not None:
            self.abort(reason, kind="login")
            return
        self._ending = "login"
        self._transport.close()

    def _end_after(self, error: Exception) -> None:
        """Ends the connection for what went wrong in it."""
        self.state = NEXT[self.state][ConnectionEvent.FAILED]
        if isinstance(error, MalformedError):
            self.abort(str(error))
        elif isinstance(error, CorruptionError):
            self.abort(f"damage on disk: {error}", kind="damage")
        elif isinstance(error, DiskError):
            self.abort(f"the disk would not read: {error}", kind="disk")
        else:
            logger.error("a request from %s failed", self._requests.client_host, exc_info=error)
            self.abort("an internal error", kind="internal")

    def _give_back(self) -> None:
        self._memory.release(self._assembler.reserved_bytes)
        self._assembler.abandon()
        while self._work:
            work = self._work.popleft()
            if isinstance(work, Reply):
                work.release()
            elif isinstance(work, Begun):
                work.close()
            else:
                self._memory.release_frame(work)
