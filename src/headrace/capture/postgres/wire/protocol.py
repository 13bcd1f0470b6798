"""PostgreSQL's frontend/backend protocol, version 3.0: messages as bytes, without I/O.

Everything but the first message of a connection is a letter, a length that counts itself,
and a body. `Frames` cuts what arrives into messages; the rest of this module writes and
reads bodies. Nothing that arrives is trusted: a length is compared with what there is.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from headrace.errors import CorruptionError

__all__ = [
    "SSL_REQUEST",
    "Body",
    "Frames",
    "ServerMessage",
    "frame",
    "read_fields",
    "read_raw_row",
    "startup",
    "status_update",
]

_VERSION = 3 << 16
_EPOCH_2000_US = 946_684_800_000_000
SSL_REQUEST = struct.pack("!ii", 8, 80877103)
_HEAD = struct.Struct("!ci")
_SHORT, _INT = struct.Struct("!h"), struct.Struct("!i")
_LARGE_BYTES = 4 << 20
MOST_BODY_BYTES = (1 << 30) + (1 << 20)  # the server's own limit of 1 GiB for a row, and what is around it


@dataclass(frozen=True, slots=True)
class ServerMessage:
    """What the server says of an error or a notice; never repeats what was asked."""

    sqlstate: str
    message: str
    detail: str = ""
    hint: str = ""

    def __str__(self) -> str:
        parts = (self.message, self.detail, self.hint)
        return "; ".join(part.rstrip(".") for part in parts if part) + f" ({self.sqlstate})"


def startup(parameters: Mapping[str, str]) -> bytes:
    """The first message of a connection, which has no letter."""
    pairs = "".join(f"{name}\0{value}\0" for name, value in parameters.items())
    body = _INT.pack(_VERSION) + pairs.encode() + b"\0"
    return _INT.pack(len(body) + 4) + body


def frame(letter: bytes, body: bytes = b"") -> bytes:
    return _HEAD.pack(letter, len(body) + 4) + body


def status_update(received: int, flushed: int, now_us: int, *, ask: bool = False) -> bytes:
    """What a standby reports: up to where it received, and up to where it is safe.

    `now_us` is since 1970. `ask` wants a keepalive at once, which says how far the server is.
    """
    body = struct.pack("!cQQQqB", b"r", received, flushed, flushed, now_us - _EPOCH_2000_US, ask)
    return frame(b"d", body)


class Frames:
    """Cuts a stream of bytes into messages; keeps what is not whole yet."""

    def __init__(self, most_body_bytes: int = MOST_BODY_BYTES) -> None:
        self.most_body_bytes = most_body_bytes
        self._kept = bytearray()
        self._at = 0

    def feed(self, data: bytes | memoryview) -> None:
        if self._at and self._at >= len(self._kept) // 2:
            del self._kept[: self._at]
            self._at = 0
        self._kept += data

    def next(self, but: bytes = b"") -> tuple[bytes, bytes] | None:
        """The letter and the body of the next message; None if it is not whole yet.

        A message with the letter `but` stays: it is told by two empty texts.
        """
        if len(self._kept) - self._at < _HEAD.size:
            return None
        letter, length = _HEAD.unpack_from(self._kept, self._at)
        if not 4 <= length <= self.most_body_bytes + 4:
            raise CorruptionError(f"a message of {length} bytes: is this a PostgreSQL server?")
        begin, end = self._at + _HEAD.size, self._at + 1 + length
        if len(self._kept) < end:
            return None
        if letter == but:
            return b"", b""
        self._at = end
        body = bytes(memoryview(self._kept)[begin:end])
        self._let_go()
        return letter, body

    @property
    def next_bytes(self) -> int:
        """How long the next message is; 0 if that is not known yet."""
        if len(self._kept) - self._at < _HEAD.size:
            return 0
        return int(_HEAD.unpack_from(self._kept, self._at)[1]) + 1

    def take(self, find_end: Callable[[bytearray, int], int]) -> bytes:
        """What is kept up to where `find_end` says, which gets all of it and where to begin."""
        begin = self._at
        self._at = find_end(self._kept, begin) if len(self._kept) > begin else begin
        taken = bytes(memoryview(self._kept)[begin : self._at])
        self._let_go()
        return taken

    def _let_go(self) -> None:
        """Frees the memory of a large message that was taken."""
        if self._at >= _LARGE_BYTES:
            del self._kept[: self._at]
            self._at = 0

    def take_all(self) -> bytearray:
        """Everything that is kept, whole messages or not; nothing is kept any longer."""
        kept, begin = self._kept, self._at
        self._kept, self._at = bytearray(), 0
        del kept[:begin]
        return kept

    @property
    def pending_bytes(self) -> int:
        return len(self._kept) - self._at


class Body:
    """Reads the body of one message from its beginning; CorruptionError where it ends too early.

    `at` is how far it has come in `data`.
    """

    __slots__ = ("_what", "at", "data")

    def __init__(self, data: bytes, what: str) -> None:
        self.data, self.at, self._what = data, 0, what

    def take(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise self.wrong(f"{count} bytes are announced at {self.at}, of {len(self.data)}")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def unsigned(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big")

    def signed(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big", signed=True)

    def text(self, errors: str = "strict") -> str:
        """A text that ends with a zero; `errors` says what becomes of what is not UTF-8."""
        end = self.data.find(0, self.at)
        if end < 0:
            raise self.wrong(f"the text at {self.at} has no end")
        taken = self.data[self.at : end]
        self.at = end + 1
        try:
            return taken.decode(errors=errors)
        except UnicodeDecodeError:
            raise self.wrong(f"the text at {self.at} is not UTF-8") from None

    def rest(self) -> bytes:
        return self.take(self.left())

    def left(self) -> int:
        """How many bytes are not read yet."""
        return len(self.data) - self.at

    def end(self) -> None:
        """Raises CorruptionError if anything is left."""
        if self.left():
            raise self.wrong(f"{self.left()} bytes are left over")

    def wrong(self, reason: str) -> CorruptionError:
        return CorruptionError(f"{self._what} of PostgreSQL cannot be read: {reason}")


def read_raw_row(body: bytes) -> tuple[bytes | None, ...]:
    """The columns of a DataRow, as the bytes of their texts."""
    read = Body(body, "a row")
    columns: list[bytes | None] = []
    for _ in range(read.unsigned(2)):
        length = read.signed(4)
        columns.append(None if length == -1 else read.take(length))
    read.end()
    return tuple(columns)


def read_fields(body: bytes) -> ServerMessage:
    """What an ErrorResponse or a NoticeResponse says."""
    fields = dict(_coded(Body(body, "an error message")))
    return ServerMessage(
        fields.get("C", "?"), fields.get("M", "no message"), fields.get("D", ""), fields.get("H", "")
    )


def _coded(read: Body) -> Iterator[tuple[str, str]]:
    while (code := read.take(1)) != b"\0":
        yield code.decode("latin-1"), read.text("replace")  # in the server's own encoding before a login
