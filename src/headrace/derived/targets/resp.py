"""A connection that speaks Redis's protocol (RESP2): commands in, replies out.

Blocking, one thread at a time. What the network or the server's restart does is a
RetriableError; a command that the server refuses is a `ReplyError`.
"""

import contextlib
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.errors import ConfigError, RequestError, RetriableError
from headrace.secret_references import is_reference, resolve

__all__ = ["RedisAddress", "ReplyError", "RespConnection"]

_TIMEOUT_S = 20.0
_RECEIVE_BYTES = 1 << 18
_OPTIONS = ("password",)
# The server is loading its data, out of memory, a replica that lost its master, or waits for a script.
_PASSING = ("LOADING", "OOM", "MASTERDOWN", "READONLY", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MISCONF")


class ReplyError(RequestError):
    """The server refuses a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAddress:
    """One database of one server; may be stored, logged and shown."""

    host: str = "127.0.0.1"
    port: int = 6379
    database: int = 0
    user: str = ""
    password: str = ""
    encrypted: bool = False

    @classmethod
    def parse(cls, url: str) -> "RedisAddress":
        """Raises ConfigError, which never repeats the URL, for what does not fit."""
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := sorted(set(options) - set(_OPTIONS)):
            raise ConfigError(f"unknown in a Redis URL: {', '.join(unknown)}; known is {', '.join(_OPTIONS)}")
        password = options.get("password", "")
        if password and not is_reference(password):
            raise ConfigError("password= says where the password is, env:NAME or file:PATH, not the password")
        database = parts.path.strip("/") or "0"
        try:
            port = parts.port or 6379
        except ValueError:
            port = 0
        if not database.isdecimal() or not port:
            raise ConfigError("a Redis URL is redis://HOST:PORT/DB, where PORT and DB are numbers")
        return cls(
            host=parts.hostname or "127.0.0.1",
            port=port,
            database=int(database),
            user=unquote(parts.username or ""),
            password=password,
            encrypted=parts.scheme == "rediss",
        )

    def __str__(self) -> str:
        return f"Redis {self.host}:{self.port}/{self.database}"


class RespConnection:
    """One session, open and logged in from the start; `close` ends it."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._unread = bytearray()
        self._at = 0
        secret = resolve(address.password, f"the password of {address}") if address.password else ""
        try:
            self._socket = socket.create_connection((address.host, address.port), _TIMEOUT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.encrypted:
                context = ssl.create_default_context()
                self._socket = context.wrap_socket(self._socket, server_hostname=address.host)
        except OSError as error:
            raise RetriableError(f"{address} cannot be reached: {error.strerror or error}") from error
        try:
            if secret:
                self.call("AUTH", *([address.user] if address.user else []), secret)
            if address.database:
                self.call("SELECT", address.database)
        except BaseException:
            self.close()
            raise

    def call(self, *words: Any) -> Any:
        """One command, and its reply."""
        return self.pipeline([words])[0]

    def pipeline(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Several commands in one go; raises the first error among the replies, all of which are read."""
        try:
            self._socket.sendall(b"".join(_encoded(each) for each in commands))
        except OSError as error:
            raise self._lost(error) from error
        replies = [self._reply() for _ in commands]
        for each in replies:
            if isinstance(each, ReplyError):
                raise _error(each, self._address)
        return replies

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    # --- replies ------------------------------------------------------------------------------

    def _reply(self) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest
        if kind == b"-":
            return ReplyError(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            size = int(rest)
            return None if size < 0 else self._bytes(size + 2)[:-2]
        if kind == b"*":
            count = int(rest)
            return None if count < 0 else [self._reply() for _ in range(count)]
        raise RetriableError(f"{self._address} does not speak Redis's protocol")

    def _line(self) -> bytes:
        while (end := self._unread.find(b"\r\n", self._at)) < 0:
            self._fill()
        line = bytes(self._unread[self._at : end])
        self._at = end + 2
        return line

    def _bytes(self, size: int) -> bytes:
        while len(self._unread) - self._at < size:
            self._fill()
        taken = bytes(self._unread[self._at : self._at + size])
        self._at += size
        return taken

    def _fill(self) -> None:
        del self._unread[: self._at]
        self._at = 0
        try:
            received = self._socket.recv(_RECEIVE_BYTES)
        except OSError as error:
            raise self._lost(error) from error
        if not received:
            raise RetriableError(f"{self._address} has closed the connection")
        self._unread += received

    def _lost(self, error: OSError) -> RetriableError:
        return RetriableError(f"the connection to {self._address} is lost: {error.strerror or error}")


def _encoded(words: Sequence[Any]) -> bytes:
    parts = [each if isinstance(each, bytes) else str(each).encode() for each in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in parts)


def _error(reply: ReplyError, address: RedisAddress) -> ReplyError | RetriableError:
    said = str(reply)
    if said.split(" ")[0] in _PASSING:
        return RetriableError(f"{address} says: {said}")
    return ReplyError(f"{address} says: {said}")
