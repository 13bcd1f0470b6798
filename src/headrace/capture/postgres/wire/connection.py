"""A connection to a PostgreSQL server: TLS, login, queries, COPY, a replication stream.

Blocking, one thread at a time. What the network or the server's restart does is a
RetriableError; what somebody has to see to is a ConfigError or a `ServerError`.
"""

import time
from collections.abc import Callable, Iterator

from headrace.capture.postgres.wire.address import PostgresAddress
from headrace.capture.postgres.wire.login import Login
from headrace.capture.postgres.wire.protocol import (
    SSL_REQUEST,
    Frames,
    ServerMessage,
    frame,
    read_fields,
    read_raw_row,
    startup,
    status_update,
)
from headrace.capture.server import ServerSocket, SslMode
from headrace.errors import CorruptionError, RequestError, RetriableError
from headrace.kernels import FoundMessages, RowTables, find_answers

__all__ = ["Connection", "Row", "ServerError", "format_lsn", "parse_lsn"]

Row = tuple[str | None, ...]

_LOGIN_BODY_BYTES = 1 << 16
# So that every value has one text, whatever the database, the role or the server is set to.
_PINNED = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO, YMD",
    "TimeZone": "UTC",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "application_name": "headrace",
}
# By SQLSTATE: connection, insufficient resources, operator intervention; a slot in use, a disk's error, a
# lock that was not to be had in time.
_RETRIABLE_CLASSES = ("08", "53", "57")
_RETRIABLE_STATES = ("55006", "40001", "40P01", "58030", "55P03")
_DATABASE_DROPPED = "57P04"


class ServerError(RequestError):
    """The server refuses what it was asked; `sqlstate` says why."""

    def __init__(self, message: ServerMessage) -> None:
        super().__init__(f"PostgreSQL says: {message}")
        self.sqlstate = message.sqlstate


def parse_lsn(text: str) -> int:
    """A position in the write-ahead log, from `16/B374D848`."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def format_lsn(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


class Connection:
    """One session, open from the start; `close` ends it.

    `replication` makes it one that also takes replication commands.
    """

    def __init__(self, address: PostgresAddress, password: str = "", *, replication: bool = False) -> None:
        self.address = address
        self.parameters: dict[str, str] = {}
        self._frames = Frames(_LOGIN_BODY_BYTES)
        self._socket = ServerSocket(address)
        try:
            self._encrypt()
            self._log_in(password, replication)
        except BaseException:
            self._socket.close()
            raise
        self._frames.most_body_bytes = Frames().most_body_bytes
        self._socket.never_time_out()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Says good-bye if that is possible at once."""
        self._socket.close(good_bye=frame(b"X"))

    def interrupt(self) -> None:
        """Makes whatever waits for the server in another thread fail with a RetriableError."""
        self._socket.interrupt()

    @property
    def server_version(self) -> int:
        """The major version."""
        digits = self.parameters.get("server_version", "0").split(".")[0]
        return int("".join(each for each in digits if each.isdigit()) or 0)

    # --- queries ------------------------------------------------------------------------------

    def stream_rows(self, sql: str) -> Iterator[tuple[bytes | None, ...]]:
        """The rows of a statement as they arrive, with the bytes of each text; read it to its end."""
        self._socket.send(frame(b"Q", sql.encode() + b"\0"))
        refused: ServerMessage | None = None
        while True:
            letter, body = self._receive()
            if letter == b"D":
                yield read_raw_row(body)
            elif letter == b"E":
                refused = read_fields(body)
            elif letter == b"Z":
                break
        if refused:
            raise _error(refused)

    def answers(self, sql: str) -> tuple[bytes, int, int]:
        """The rows of a statement as messages, one behind the other; how many, and where the last begins."""
        self._socket.send(frame(b"Q", sql.encode() + b"\0"))
        refused: ServerMessage | None = None
        parts: list[bytes] = []
        size = count = last = 0

        def find_end(kept: bytearray, begin: int) -> int:
            nonlocal count, last
            found = find_answers(kept, begin)
            if found.count:
                count, last = count + found.count, size + found.last_place - begin
            return found.end

        while True:
            if taken := self._frames.take(find_end):
                parts.append(taken)
                size += len(taken)
            letter, body = self._receive(but=b"D")
            if letter == b"E":
                refused = read_fields(body)
            elif letter == b"Z":
                break
        if refused:
            raise _error(refused)
        return b"".join(parts), count, last

    def answer_blocks(
        self, sql: str, most_bytes: int, before_more: Callable[[int], None] = lambda _: None
    ) -> Iterator[bytes]:
        """The same as they arrive, in blocks of about so many bytes; read them to their end.

        `before_more` is told how large a row is, before more of it is received.
        """
        self._socket.send(frame(b"Q", sql.encode() + b"\0"))
        refused: ServerMessage | None = None
        parts: list[bytes] = []
        size = 0
        while True:
            parts.append(self._frames.take(lambda kept, begin: find_answers(kept, begin).end))
            size += len(parts[-1])
            if size >= most_bytes:
                whole = [b"".join(filter(None, parts))]
                parts, size = [], 0
                yield whole.pop()  # which nobody else holds while it is used
            letter, body = self._receive(b"D", before_more)
            if letter == b"E":
                refused = read_fields(body)
            elif letter == b"Z":
                break
        if refused:
            raise _error(refused)
        if size:
            yield b"".join(parts)

    def raw_rows(self, sql: str) -> list[tuple[bytes | None, ...]]:
        return list(self.stream_rows(sql))

    def query(self, sql: str) -> list[Row]:
        """The rows of all statements, as texts; ServerError for the first that the server refuses."""
        return [tuple(_as_text(each) for each in row) for row in self.stream_rows(sql)]

    def value(self, sql: str) -> str:
        """The only column of the only row."""
        rows = self.query(sql)
        if len(rows) != 1 or not rows[0] or rows[0][0] is None:
            raise CorruptionError(f"PostgreSQL answers {len(rows)} rows where one value was expected")
        return rows[0][0]

    def copy_out(self, sql: str) -> Iterator[bytes]:
        """The lines of a `COPY … TO STDOUT`, each with its line feed; read it to its end."""
        self._socket.send(frame(b"Q", sql.encode() + b"\0"))
        refused: ServerMessage | None = None
        while True:
            letter, body = self._receive()
            if letter == b"d":
                yield body
            elif letter == b"E":
                refused = read_fields(body)
            elif letter == b"Z":
                break
        if refused:
            raise _error(refused)

    # --- replication --------------------------------------------------------------------------

    def start_replication(self, command: str) -> None:
        """Sends START_REPLICATION; from then on the connection belongs to the stream."""
        self._socket.send(frame(b"Q", command.encode() + b"\0"))
        refused: ServerMessage | None = None
        while True:
            letter, body = self._receive()
            if letter == b"W":
                return
            if letter == b"E":
                refused = read_fields(body)
            if letter == b"Z" and refused:
                raise _error(refused)

    def read_ahead(self, tick: Callable[[], None], tick_s: float) -> None:
        """Has a thread receive the stream, and call `tick`, while the caller does other work."""
        self._socket.read_ahead(tick, tick_s)

    def stream(self, wait_s: float | None) -> bytes | None:
        """The next CopyData of the stream; None if none came within `wait_s`; with None, if none is here.

        Raises RetriableError when the stream or the connection ends.
        """
        while (message := self._frames.next()) is None:
            if wait_s is None or not self.wait(wait_s):
                return None
            self._fill()
        letter, body = message
        if letter == b"d":
            return body
        if letter == b"E":
            raise _error(read_fields(body))
        if letter in (b"c", b"C", b"Z"):
            raise RetriableError(f"{self.address} has ended the replication stream")
        return b""

    def await_message(self) -> None:
        """Waits until the next message of the stream is here as a whole."""
        while self._frames.next(b"d") is None:
            self._fill()

    def stream_rows_of(self, tables: RowTables) -> tuple[bytes, FoundMessages]:
        """What has arrived of the stream next, as long as it is rows of these tables; it may be nothing."""
        found = FoundMessages(0, 0, 0, ())

        def find_end(kept: bytearray, begin: int) -> int:
            nonlocal found
            found = tables.find(kept, begin)
            return found.end

        return self._frames.take(find_end), found

    def confirm(self, received: int, flushed: int, *, ask: bool = False) -> None:
        """Tells the server how far the stream was received, and up to where it may be forgotten."""
        self._socket.send(status_update(received, flushed, time.time_ns() // 1000, ask=ask))

    def wait(self, wait_s: float) -> bool:
        """Whether bytes arrive within `wait_s`."""
        return self._socket.wait(wait_s)

    def fileno(self) -> int:
        return self._socket.fileno()

    # --- bytes --------------------------------------------------------------------------------

    def _receive(
        self, but: bytes = b"", before_more: Callable[[int], None] = lambda _: None
    ) -> tuple[bytes, bytes]:
        """The next message; with `but`, nothing, as soon as the next one has that letter and is whole."""
        while True:
            while (message := self._frames.next(but)) is None:
                before_more(self._frames.next_bytes)
                self._fill()
            letter, body = message
            if letter == b"S":
                name, _, value = body.partition(b"\0")
                self.parameters[name.decode("latin-1")] = value.rstrip(b"\0").decode("utf-8", "replace")
            elif letter not in b"NA" or not letter:
                return letter, body

    def _fill(self) -> None:
        self._frames.feed(self._socket.receive())

    # --- login --------------------------------------------------------------------------------

    def _encrypt(self) -> None:
        if self.address.sslmode is SslMode.DISABLE or self.address.socket_path:
            return
        self._socket.send(SSL_REQUEST)
        if bytes(self._socket.receive(1)) == b"S":
            self._socket.encrypt()
        else:
            self._socket.refuse_plain()

    def _log_in(self, password: str, replication: bool) -> None:
        parameters = {"user": self.address.user, "database": self.address.database, **_PINNED}
        if replication:
            parameters["replication"] = "database"
        self._socket.send(startup(parameters))
        login = Login(self.address.user, password, encrypted=self._socket.is_encrypted)
        while True:
            letter, body = self._receive()
            if letter == b"R":
                if (answer := login.answer(body)) is not None:
                    self._socket.send(answer)
            elif letter == b"E":
                raise _error(read_fields(body))
            elif letter == b"Z":
                return


def _as_text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CorruptionError("PostgreSQL answers with text that is not UTF-8") from None


def _error(message: ServerMessage) -> RequestError | RetriableError:
    if message.sqlstate == _DATABASE_DROPPED:
        return ServerError(message)
    if message.sqlstate[:2] in _RETRIABLE_CLASSES or message.sqlstate in _RETRIABLE_STATES:
        return RetriableError(f"PostgreSQL says: {message}")
    return ServerError(message)
