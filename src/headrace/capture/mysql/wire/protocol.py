"""The client/server protocol of MySQL: packets and their contents, without I/O.

A packet is a length of three bytes, a sequence number and a body; a body of 16 MiB less one byte
goes on in the next packet. `Packets` cuts what arrives into bodies; the rest of this module
writes and reads bodies. Nothing that arrives is trusted: a length is compared with what there is.
"""

import struct
from dataclasses import dataclass
from enum import IntFlag

from headrace.errors import CorruptionError

__all__ = [
    "Body",
    "Capability",
    "Greeting",
    "Packets",
    "ServerMessage",
    "binlog_dump",
    "handshake_response",
    "lenenc",
    "packets",
    "read_error",
    "read_greeting",
    "read_row",
    "ssl_request",
]

_WHOLE_BYTES = (1 << 24) - 1
MOST_BODY_BYTES = (1 << 30) + (64 << 20)  # the server's own limit of 1 GiB for a packet, and some
_UTF8MB4 = 45
_NULL, _TWO, _THREE, _EIGHT = 0xFB, 0xFC, 0xFD, 0xFE
_PROTOCOL = 10
_SCRAMBLE_HEAD = 8


class Capability(IntFlag):
    """What client and server can do; both have to."""

    LONG_PASSWORD = 1
    LONG_FLAG = 4
    CONNECT_WITH_DB = 8
    PROTOCOL_41 = 1 << 9
    SSL = 1 << 11
    TRANSACTIONS = 1 << 13
    SECURE_CONNECTION = 1 << 15
    MULTI_STATEMENTS = 1 << 16
    PLUGIN_AUTH = 1 << 19
    PLUGIN_AUTH_LENENC = 1 << 21


class Body:
    """Reads a body from its beginning; CorruptionError where it ends too early.

    `at` is how far it has come in `data`. Numbers are little-endian.
    """

    __slots__ = ("_what", "at", "data", "end")

    def __init__(self, data: bytes, what: str, at: int = 0) -> None:
        self.data, self.at, self._what = data, at, what
        self.end = len(data)

    def take(self, count: int) -> bytes:
        until = self.at + count
        if count < 0 or until > self.end:
            raise self.wrong(f"{count} bytes are announced at {self.at}, of {self.end}")
        taken = self.data[self.at : until]
        self.at = until
        return taken

    def unsigned(self, count: int) -> int:
        return int.from_bytes(self.take(count), "little")

    def text(self) -> str:
        """A text that ends with a zero, or with the body."""
        until = self.data.find(0, self.at, self.end)
        until = self.end if until < 0 else until
        taken = self.data[self.at : until]
        self.at = min(until + 1, self.end)
        return taken.decode("utf-8", "replace")

    def length(self) -> int:
        """A number of one to nine bytes."""
        first = self.unsigned(1)
        if first < _NULL:
            return first
        if first not in (_TWO, _THREE, _EIGHT):
            raise self.wrong(f"no length at {self.at - 1}")
        return self.unsigned({_TWO: 2, _THREE: 3, _EIGHT: 8}[first])

    def counted(self) -> bytes:
        """Bytes behind their number."""
        return self.take(self.length())

    def rest(self) -> bytes:
        return self.take(self.left())

    def left(self) -> int:
        """How many bytes are not read yet."""
        return self.end - self.at

    def wrong(self, reason: str) -> CorruptionError:
        return CorruptionError(f"{self._what} of MySQL cannot be read: {reason}")


class Packets:
    """Cuts a stream of bytes into bodies; keeps what is not whole yet."""

    def __init__(self, most_body_bytes: int = MOST_BODY_BYTES) -> None:
        self.most_body_bytes = most_body_bytes
        self.sequence = 0  # of the last packet
        self._kept = bytearray()
        self._at = 0
        self._parts: list[bytes] = []
        self._parts_bytes = 0

    def feed(self, data: bytes | memoryview) -> None:
        if self._at and self._at >= len(self._kept) // 2:
            del self._kept[: self._at]
            self._at = 0
        self._kept += data

    def next(self) -> bytes | None:
        """The next body; None if it is not whole yet."""
        while len(self._kept) - self._at >= 4:
            length = int.from_bytes(self._kept[self._at : self._at + 3], "little")
            if self._parts_bytes + length > self.most_body_bytes:
                raise CorruptionError(
                    f"a packet of {self._parts_bytes + length} bytes: is this a MySQL server?"
                )
            begin = self._at + 4
            if len(self._kept) < begin + length:
                return None
            self.sequence = self._kept[self._at + 3]
            body = bytes(memoryview(self._kept)[begin : begin + length])
            self._at = begin + length
            if length < _WHOLE_BYTES:
                if self._parts:
                    body = b"".join([*self._parts, body])
                    self._parts, self._parts_bytes = [], 0
                return body
            self._parts.append(body)
            self._parts_bytes += length
        return None


def packets(body: bytes, sequence: int = 0) -> bytes:
    """The body as packets, the first with this number."""
    made = []
    for begin in range(0, len(body) + 1, _WHOLE_BYTES):
        part = body[begin : begin + _WHOLE_BYTES]
        made.append(len(part).to_bytes(3, "little") + bytes([sequence % 256]) + part)
        sequence += 1
    return b"".join(made)


def lenenc(number: int) -> bytes:
    """A number as `Body.length` reads it."""
    if number < _NULL:
        return bytes([number])
    if number < 1 << 16:
        return b"\xfc" + number.to_bytes(2, "little")
    if number < 1 << 24:
        return b"\xfd" + number.to_bytes(3, "little")
    return b"\xfe" + number.to_bytes(8, "little")


@dataclass(frozen=True, slots=True)
class ServerMessage:
    """What the server says of an error; never repeats a password."""

    code: int
    sqlstate: str
    message: str

    def __str__(self) -> str:
        return f"{self.message.rstrip('.')} ({self.code}, {self.sqlstate})"


def read_error(body: bytes) -> ServerMessage:
    """What an ERR packet says."""
    read = Body(body, "an error message", 1)
    code = read.unsigned(2)
    said = read.rest()
    if said[:1] == b"#":
        return ServerMessage(code, said[1:6].decode("latin-1"), said[6:].decode("utf-8", "replace"))
    return ServerMessage(code, "HY000", said.decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """The first packet of a server."""

    version: str
    capabilities: int
    scramble: bytes
    plugin: str

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in self.version.lower()

    @property
    def release(self) -> tuple[int, ...]:
        """The numbers of the version: (10, 11, 6)."""
        text = self.version.removeprefix("5.5.5-") if self.is_mariadb else self.version
        numbers = text.split("-")[0].split(".")
        return tuple(int("".join(digit for digit in each if digit.isdigit()) or 0) for each in numbers)


def read_greeting(body: bytes) -> Greeting:
    read = Body(body, "the greeting")
    if read.unsigned(1) != _PROTOCOL:
        raise read.wrong("its protocol is not version 10; is this a MySQL server?")
    version = read.text()
    read.take(4)
    scramble = read.take(_SCRAMBLE_HEAD)
    read.take(1)
    low = read.unsigned(2)
    read.take(3)
    capabilities = low | read.unsigned(2) << 16
    length = read.unsigned(1)
    read.take(10)
    scramble += read.take(max(13, length - _SCRAMBLE_HEAD)).rstrip(b"\0")
    plugin = read.text() if read.left() else "mysql_native_password"
    return Greeting(version=version, capabilities=capabilities, scramble=scramble, plugin=plugin)


def ssl_request(capabilities: int) -> bytes:
    """What asks for TLS before anything is said of a user."""
    return struct.pack("<IIB23x", capabilities, MOST_BODY_BYTES, _UTF8MB4)


def handshake_response(capabilities: int, user: str, database: str, answer: bytes, plugin: str) -> bytes:
    return (
        struct.pack("<IIB23x", capabilities, MOST_BODY_BYTES, _UTF8MB4)
        + user.encode()
        + b"\0"
        + lenenc(len(answer))
        + answer
        + (database.encode() + b"\0" if capabilities & Capability.CONNECT_WITH_DB else b"")
        + plugin.encode()
        + b"\0"
    )


def read_row(body: bytes) -> tuple[bytes | None, ...]:
    """The columns of a row, as the bytes of their texts."""
    columns: list[bytes | None] = []
    at, end = 0, len(body)
    while at < end:
        first = body[at]
        at += 1
        if first == _NULL:
            columns.append(None)
            continue
        if first > _NULL:
            read = Body(body, "a row", at - 1)
            first, at = read.length(), read.at
        if at + first > end:
            raise CorruptionError(f"a row of MySQL cannot be read: {first} bytes are announced at {at}")
        columns.append(body[at : at + first])
        at += first
    return tuple(columns)


def binlog_dump(file: str, position: int, server_id: int, *, gtids: bytes | None = None) -> bytes:
    """Asks for the binary log: from a position, or for all but these transactions (MySQL)."""
    if gtids is None:
        return b"\x12" + struct.pack("<IHI", position, 0, server_id) + file.encode()
    name = file.encode()
    head = struct.pack("<HII", 4, server_id, len(name))
    return b"\x1e" + head + name + struct.pack("<QI", position, len(gtids)) + gtids
