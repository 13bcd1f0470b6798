"""Bytes on their way to readers: bounded for each reader, and for all of them together.

An answer or an event is handed to its connection piece by piece, and the next piece only
when the reader has taken enough of those before it; the rest stays where it was made. The
body of an event is the same bytes for everybody who is sent it, and counts once however
many they are. When more than `most_bytes` is held like that, the reader that has waited
longest without taking anything is cut. A subscriber loses nothing by it: an event that
was cut short is never delivered, and the id of the one before it tells where to resume.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

__all__ = ["FULL", "NO_CONNECTION", "STALLED", "ClientConnection", "ConnectedReader", "SendBuffers"]

# Why a reader was cut.
STALLED, FULL = "stalled", "full"

Payload = bytes | memoryview


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """What a reader's connection can do: tell what it has buffered, and end at once."""

    buffered: Callable[[], int]
    abort: Callable[[], None]


NO_CONNECTION = ClientConnection(buffered=lambda: 0, abort=lambda: None)


class SendBuffers:
    """What is held for all readers of a console; event loop only."""

    def __init__(self, most_bytes: int, piece_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.piece_bytes = piece_bytes
        self.held_bytes = 0
        self.cut: Counter[str] = Counter()
        self._holders: dict[int, int] = {}
        self._sending: dict[ConnectedReader, None] = {}  # in the order in which they began
        self._open: set[ConnectedReader] = set()

    def open(self, connection: ClientConnection = NO_CONNECTION) -> "ConnectedReader":
        """A reader whose connection this is; `ConnectedReader.close` forgets it."""
        reader = ConnectedReader(self, connection)
        self._open.add(reader)
        return reader

    def buffered_bytes(self) -> int:
        """Everything that readers have yet to take: what is held here, and what their connections hold."""
        return self.held_bytes + sum(each.connection.buffered() for each in self._open)

    def cut_all(self) -> None:
        """Cuts readers that have not yet taken what was sent: the console ends."""
        for each in list(self._sending):
            each.cut()

    def stalled(self) -> None:
        """A connection was cut whose reader took nothing for too long."""
        self.cut[STALLED] += 1

    def _hold(self, reader: "ConnectedReader", body: Payload) -> None:
        """Counts a body, and cuts those who waited longest until there is room; never `reader` itself."""
        owner = _owner(body)
        if self._holders.setdefault(id(owner), 0) == 0:
            self.held_bytes += len(owner)
        self._holders[id(owner)] += 1
        reader.body = body
        self._sending[reader] = None
        while self.held_bytes > self.most_bytes and len(self._sending) > 1:
            slowest = min((each for each in self._sending if each is not reader), key=_waiting_since)
            self.cut[FULL] += 1
            slowest.cut()

    def _release(self, reader: "ConnectedReader") -> None:
        if reader.body is None:
            return
        owner, reader.body = _owner(reader.body), None
        del self._sending[reader]
        self._holders[id(owner)] -= 1
        if self._holders[id(owner)] == 0:
            del self._holders[id(owner)]
            self.held_bytes -= len(owner)


@dataclass(slots=True, eq=False)
class ConnectedReader:
    """One connection that is being sent something."""

    send_buffers: SendBuffers
    connection: ClientConnection
    body: Payload | None = field(default=None, repr=False)
    waiting_since: float | None = None
    is_cut: bool = False

    async def send(self, body: Payload, send: Callable[[Payload, bool], Awaitable[None]]) -> None:
        """Sends a body in pieces: `send` is given each, with whether it is the last, and waits for room.

        Returns early when the reader was cut.
        """
        if self.is_cut:
            return
        loop = asyncio.get_running_loop()
        self.send_buffers._hold(self, body)
        try:
            for piece, is_last in _pieces(body, self.send_buffers.piece_bytes):
                self.waiting_since = loop.time()
                await send(piece, is_last)
                if self.is_cut:
                    return
        finally:
            self.waiting_since = None
            self.send_buffers._release(self)

    def cut(self) -> None:
        """Ends the connection, and lets go of what is held for it."""
        self.is_cut = True
        self.send_buffers._release(self)
        self.connection.abort()

    def close(self) -> None:
        """Nothing more will be sent."""
        self.send_buffers._release(self)
        self.send_buffers._open.discard(self)


def _waiting_since(reader: ConnectedReader) -> float:
    return reader.waiting_since if reader.waiting_since is not None else float("inf")


def _owner(body: Payload) -> bytes:
    """The bytes that a body is, or is a part of."""
    return body.obj if isinstance(body, memoryview) else body  # type: ignore[return-value]


def _pieces(body: Payload, size: int) -> Iterator[tuple[Payload, bool]]:
    if len(body) <= size:
        yield body, True
        return
    view = memoryview(body)
    for at in range(0, len(view), size):
        yield view[at : at + size], at + size >= len(view)
