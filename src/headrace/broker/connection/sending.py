"""Sending answers on one connection: small ones at once, large ones window by window.

A client that does not take its answer holds what its socket did not take of one window,
and one more at most. The window is shared by all connections: what is in it is sent before
anything is waited for.
"""

import asyncio
import contextlib
import os
from typing import cast

from headrace.broker.apis.answers import Reply
from headrace.broker.connection.shared import Buffers, LoopLoad
from headrace.broker.log import WorkerThreads
from headrace.kernels import SendOutcome
from headrace.storage import Extent

__all__ = ["ConnectionClosed", "Sender"]

SMALL_ANSWER_BYTES = 16 * 1024
TURN_BYTES = 256 * 1024  # of a large answer, before others have their turn
LONGEST_TURN_BYTES = 4 * 1024 * 1024  # the same, where it is known that nobody waits for one


class ConnectionClosed(Exception):  # noqa: N818 - not an error: the client left
    """The connection ended while something was still to be sent."""


class _ReadAhead:
    """An extent whose first bytes, or all of them, were read already."""

    __slots__ = ("_extent", "_head", "bytes_read", "size_bytes")

    def __init__(self, head: bytes | bytearray, extent: Extent) -> None:
        self._head = head
        self._extent = extent
        self.size_bytes = extent.size_bytes
        self.bytes_read = 0  # nothing of it has been sent

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


class Sender:
    """The way out of one connection. Event loop only."""

    __slots__ = ("_buffers", "_closed", "_loop_load", "_socket", "_threads", "_transport", "writable")

    def __init__(
        self, transport: asyncio.Transport, buffers: Buffers, loop_load: LoopLoad, threads: WorkerThreads
    ) -> None:
        self._transport = transport
        self._buffers = buffers
        self._loop_load = loop_load
        self._threads = threads
        self._closed = False
        self.writable = asyncio.Event()  # set while the client takes what it is sent
        self.writable.set()
        self._socket = -1  # its descriptor, where bytes may be written to it as they are
        if transport.get_extra_info("ssl_object") is None:
            self._socket = transport.get_extra_info("socket").fileno()
            transport.set_write_buffer_limits(high=0)  # what it holds is sent before more is added
        else:
            transport.set_write_buffer_limits(high=len(buffers.window))

    # --- how the client takes it --------------------------------------------------------------

    def pause(self) -> None:
        self.writable.clear()

    def resume(self) -> None:
        self.writable.set()

    def close(self) -> None:
        """The connection is gone: nothing is sent any more."""
        self._closed = True
        self.writable.set()

    def clear_socket(self) -> int:
        """The socket, if bytes may be written to it as they are, else -1."""
        return self._socket if self._is_clear() else -1

    def _is_clear(self) -> bool:
        """Whether bytes may be written to the socket as they are.

        Behind what the transport still has to send, it must do that itself; and its
        descriptor is no longer ours once it is closing.
        """
        transport = self._transport
        return self._socket >= 0 and not transport.get_write_buffer_size() and not transport.is_closing()

    # --- at once ------------------------------------------------------------------------------

    def send(self, part: bytes | bytearray | memoryview) -> None:
        """Sends what the client takes at once, and leaves a copy of the rest to the transport."""
        if self._closed:
            return
        sent = 0
        if self._is_clear():
            with contextlib.suppress(OSError):  # it takes nothing now, or is broken: the transport finds out
                sent = os.write(self._socket, part)
        if sent < len(part):
            self._transport.write(bytes(part[sent:]))

    def leave_to_transport(self, part: memoryview) -> None:
        """Sends what the socket did not take."""
        self._transport.write(part)

    def send_small(self, reply: Reply) -> bool:
        """Whether the answer was small, and its records in memory: it is sent then."""
        frame = reply.frame
        if int.from_bytes(frame[:4], "big") > SMALL_ANSWER_BYTES:
            return False
        if not frame.deferred:
            self.send(frame)
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
        self.send(b"".join(parts))
        return True

    # --- window by window ---------------------------------------------------------------------

    async def send_reply(self, reply: Reply) -> None:
        """Sends an answer; deferred records are read window by window, as fast as the client takes them."""
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
            await self._put(self._buffers.window[:filled])
        finally:
            reply.release()

    async def _send_extent(self, filled: int, extent: Extent) -> int:
        """Sends records behind the `filled` bytes of the window; how many bytes it holds in the end.

        All of them, or as long as their way to the socket is a short one: the disk
        need not be waited for, and no bytes are left with the transport.
        """
        others = self._loop_load.descriptor
        window, most = self._buffers.wide_window, LONGEST_TURN_BYTES
        if others < 0:
            window, most = window._replace(octets=self._buffers.window), TURN_BYTES
        while self._is_clear():
            outcome, rest = extent.send(self._socket, window, filled, most, others)
            if outcome is SendOutcome.ENDED:
                return len(rest)
            if rest:
                await self._put(rest)
            filled = 0
            if outcome is SendOutcome.NOT_IN_MEMORY:
                break
            await asyncio.sleep(0)  # the others' turn, however fast this client reads
        return filled

    async def _fill_extent(self, filled: int, extent: Extent) -> int:
        """Adds what is left of the records to the window, which is sent whenever it is full."""
        window = self._buffers.window
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
                chunk = await self._threads.run(extent.read_chunk, min(left, len(window)))
                assert chunk, "an extent ended before its size"
                await self._put(chunk)
                count = len(chunk)
            else:
                filled += count
            left -= count
        return filled

    async def _fill(self, filled: int, part: memoryview) -> int:
        """Adds part of an answer to the window, which holds `filled` bytes of it; how many it holds then."""
        window, size = self._buffers.window, len(part)
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
        if self._closed:
            raise ConnectionClosed
        self.send(part)
        if not self.writable.is_set():
            await self.writable.wait()
        if self._closed:
            raise ConnectionClosed
