"""A connection to a MySQL or MariaDB server: TLS, login, queries, the stream of the binary log.

Blocking, one thread at a time. What the network or the server's restart does is a
RetriableError; what somebody has to see to is a ConfigError or a `ServerError`.
"""

from collections.abc import Iterator

from headrace.capture.mysql.wire.address import MysqlAddress
from headrace.capture.mysql.wire.login import Login
from headrace.capture.mysql.wire.protocol import (
    Body,
    Capability,
    Greeting,
    Packets,
    ServerMessage,
    handshake_response,
    packets,
    read_error,
    read_greeting,
    read_row,
    ssl_request,
)
from headrace.capture.server import ServerSocket, SslMode
from headrace.errors import ConfigError, CorruptionError, RequestError, RetriableError

__all__ = ["Connection", "Row", "ServerBusy", "ServerError"]

Row = tuple[str | None, ...]

_LOGIN_BODY_BYTES = 1 << 16
_WANTED = (
    Capability.LONG_PASSWORD
    | Capability.LONG_FLAG
    | Capability.PROTOCOL_41
    | Capability.TRANSACTIONS
    | Capability.SECURE_CONNECTION
    | Capability.PLUGIN_AUTH
    | Capability.PLUGIN_AUTH_LENENC
)
_OK, _ERROR, _END = 0x00, 0xFF, 0xFE
_SHORT_BYTES = 9
_QUIT, _QUERY = b"\x01", b"\x03"
# So that every value has one text, whatever the user or the server is set to.
_PINNED = (
    "SET NAMES utf8mb4",
    "SET time_zone = '+00:00'",
    "SET sql_mode = ''",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET SESSION wait_timeout = 2147483",
    "SET SESSION net_write_timeout = 600",
)
# Too many connections, shutdown, lost connection, lock wait, deadlock, interrupted, host blocked, disk full.
_RETRIABLE = (
    1021, 1040, 1053, 1077, 1079, 1129, 1152, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1226, 1317, 1927,
    2006, 2013, 3168,
)  # fmt: skip


class ServerError(RequestError):
    """The server refuses what it was asked; `number` says why."""

    def __init__(self, message: ServerMessage, product: str) -> None:
        super().__init__(f"{product} says: {message}")
        self.number = message.code
        self.message = message.message


class ServerBusy(RetriableError):  # noqa: N818 - a circumstance
    """The server cannot do now what it was asked; `number` says why."""

    def __init__(self, message: ServerMessage, product: str) -> None:
        super().__init__(f"{product} says: {message}")
        self.number = message.code


class Connection:
    """One session, open from the start; `close` ends it."""

    def __init__(self, address: MysqlAddress, password: str = "") -> None:
        self.address = address
        self._packets = Packets(_LOGIN_BODY_BYTES)
        self._socket = ServerSocket(address)
        try:
            self.greeting = self._greeted()
            self._log_in(password)
        except BaseException:
            self._socket.close()
            raise
        self._packets.most_body_bytes = Packets().most_body_bytes
        self._socket.never_time_out()
        try:
            for statement in _PINNED:
                self.query(statement)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Says good-bye if that is possible at once."""
        self._socket.close(good_bye=packets(_QUIT))

    @property
    def is_mariadb(self) -> bool:
        return self.greeting.is_mariadb

    @property
    def product(self) -> str:
        return "MariaDB" if self.is_mariadb else "MySQL"

    # --- queries ------------------------------------------------------------------------------

    def stream_rows(self, sql: str) -> Iterator[tuple[bytes | None, ...]]:
        """The rows of a statement as they arrive, with the bytes of each text; read it to its end."""
        return map(read_row, self.stream_bodies(sql))

    def stream_bodies(self, sql: str) -> Iterator[bytes]:
        """The same, as the server has sent them."""
        self._socket.send(packets(_QUERY + sql.encode()))
        first = self._receive()
        if first[0] == _OK:
            return
        for _ in range(Body(first, "the head of a result").length()):
            self._receive()
        self._receive()
        while True:
            body = self._receive()
            if body[0] == _END and len(body) < _SHORT_BYTES:
                return
            yield body

    def raw_rows(self, sql: str) -> list[tuple[bytes | None, ...]]:
        return list(self.stream_rows(sql))

    def query(self, sql: str) -> list[Row]:
        """The rows of a statement, as texts; ServerError if the server refuses it."""
        return [tuple(_as_text(each) for each in row) for row in self.stream_rows(sql)]

    def value(self, sql: str) -> str:
        """The only column of the only row."""
        rows = self.query(sql)
        if len(rows) != 1 or not rows[0] or rows[0][0] is None:
            raise CorruptionError(f"{self.product} answers {len(rows)} rows where one value was expected")
        return rows[0][0]

    def variable(self, name: str) -> str:
        """A global variable; empty if the server has none of that name."""
        rows = self.query(f"SHOW GLOBAL VARIABLES LIKE '{name}'")
        return next((value or "" for found, value in rows if found == name), "")

    # --- the binary log -----------------------------------------------------------------------

    def start_stream(self, command: bytes) -> None:
        """Asks for the binary log; from then on the connection belongs to `stream`, and is read ahead."""
        self._socket.send(packets(command))
        self._socket.read_ahead()

    def stream(self, wait_s: float) -> bytes | None:
        """The next event; None if none came within `wait_s`.

        Raises ServerError or RetriableError when the stream or the connection ends.
        """
        while (body := self._packets.next()) is None:
            if not self.wait(wait_s):
                return None
            self._fill()
        if body[:1] == b"\0":
            return body[1:]
        if body[:1] == b"\xff":
            raise self._error(read_error(body))
        raise RetriableError(f"{self.address} has ended the stream of its binary log")

    def wait(self, wait_s: float) -> bool:
        """Whether bytes arrive within `wait_s`."""
        return self._socket.wait(wait_s)

    # --- bytes --------------------------------------------------------------------------------

    def _receive(self) -> bytes:
        while (body := self._packets.next()) is None:
            self._fill()
        if not body:
            raise CorruptionError(f"{self.address} answers with an empty packet")
        if body[0] == _ERROR:
            raise self._error(read_error(body))
        return body

    def _fill(self) -> None:
        self._packets.feed(self._socket.receive())

    def _error(self, message: ServerMessage) -> ServerError | ServerBusy:
        product = self.product if hasattr(self, "greeting") else "MySQL"
        if message.code in _RETRIABLE or message.sqlstate.startswith("08"):
            return ServerBusy(message, product)
        return ServerError(message, product)

    # --- login --------------------------------------------------------------------------------

    def _greeted(self) -> Greeting:
        greeting = read_greeting(self._receive())
        if not greeting.capabilities & Capability.PLUGIN_AUTH:
            raise ConfigError(f"{self.address} runs version {greeting.version}, which is too old")
        return greeting

    def _log_in(self, password: str) -> None:
        capabilities = _WANTED
        if self._is_encrypted_wanted():
            capabilities |= Capability.SSL
            self._socket.send(packets(ssl_request(capabilities), self._packets.sequence + 1))
            self._socket.encrypt()
        sequence = self._packets.sequence + (2 if capabilities & Capability.SSL else 1)
        private = bool(capabilities & Capability.SSL or self.address.socket)
        login = Login(self.address.user, password, is_private=private)
        answer = login.begin(self.greeting.plugin, self.greeting.scramble)
        response = handshake_response(capabilities, self.address.user, "", answer, login.plugin)
        self._socket.send(packets(response, sequence))
        while not login.is_done:
            told = login.answer(self._receive())
            if told is not None:
                self._socket.send(packets(told, self._packets.sequence + 1))

    def _is_encrypted_wanted(self) -> bool:
        if self.address.sslmode is SslMode.DISABLE or self.address.socket_path:
            return False
        if self.greeting.capabilities & Capability.SSL:
            return True
        self._socket.refuse_plain()
        return False


def _as_text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CorruptionError("MySQL answers with text that is not UTF-8") from None
