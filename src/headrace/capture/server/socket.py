"""A blocking socket to a database server, with TLS.

What the network or the server's restart does is a RetriableError; a certificate that is
not accepted is a ConfigError.
"""

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Callable

from headrace.capture.server.address import ServerAddress, SslMode
from headrace.capture.server.read_ahead import ReadAhead
from headrace.errors import ConfigError, RetriableError

__all__ = ["ServerSocket"]

_RECEIVE_BYTES = 1 << 20
_AHEAD_BYTES = 4 << 20
_GOOD_BYE_S = 0.2


class ServerSocket:
    """Connected from the start, within the address's time-out, which `never_time_out` takes away.

    One thread at a time; after `read_ahead` another one receives, and never while this one sends.
    """

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._socket: socket.socket = _connected(address)
        self._using = threading.Lock()  # TLS does not take two threads
        self._ahead: ReadAhead | None = None

    @property
    def is_encrypted(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket)

    def never_time_out(self) -> None:
        """Waits for as long as an answer takes, once the login is over."""
        self._socket.settimeout(None)

    def encrypt(self) -> None:
        """Begins TLS, as the address asks for."""
        try:
            context = _tls(self.address)
            self._socket = context.wrap_socket(self._socket, server_hostname=self.address.host)
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(
                f"the certificate of {self.address} is not accepted: {error.verify_message}; name the "
                "authority that signed it with sslrootcert=PATH, and the host as the certificate does"
            ) from None
        except OSError as error:
            raise self._lost(error) from error

    def refuse_plain(self) -> None:
        """ConfigError if the address asks for TLS, which the server does not offer."""
        if self.address.sslmode is not SslMode.PREFER:
            raise ConfigError(
                f"{self.address} does not offer TLS, which sslmode={self.address.sslmode} asks for"
            )

    def read_ahead(self, tick: Callable[[], None] = lambda: None, tick_s: float = 1.0) -> None:
        """From now on a thread receives, while the caller does other work, and calls `tick` now and then."""
        self._ahead = ReadAhead(
            self._received, self._is_ready, most_bytes=_AHEAD_BYTES, tick=tick, tick_s=tick_s
        )

    def send(self, data: bytes) -> None:
        try:
            with self._using:
                self._socket.sendall(data)
        except OSError as error:
            raise self._lost(error) from error

    def receive(self, most: int = _RECEIVE_BYTES) -> memoryview:
        """What has arrived, at least a byte; valid until the next call."""
        if self._ahead is not None:
            return memoryview(self._ahead.take())
        try:
            count = self._socket.recv_into(self._buffer, most)
        except OSError as error:
            raise self._lost(error) from error
        if not count:
            raise RetriableError(f"{self.address} has closed the connection")
        return memoryview(self._buffer)[:count]

    def wait(self, wait_s: float) -> bool:
        """Whether bytes arrive within `wait_s`."""
        return self._ahead.wait(wait_s) if self._ahead is not None else self._is_ready(wait_s)

    def _received(self) -> bytes:
        """What has arrived, for the thread that reads ahead."""
        try:
            with self._using:
                data = self._socket.recv(_RECEIVE_BYTES)
        except OSError as error:
            raise self._lost(error) from error
        if not data:
            raise RetriableError(f"{self.address} has closed the connection")
        return data

    def _is_ready(self, wait_s: float) -> bool:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return bool(select.select([self._socket], [], [], max(0.0, wait_s))[0])

    def fileno(self) -> int:
        return self._socket.fileno()

    def interrupt(self) -> None:
        """Ends the connection, so that a thread which sends or receives gets a RetriableError."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self, good_bye: bytes = b"") -> None:
        """Says good-bye if that is possible at once."""
        try:
            if good_bye:
                self._socket.settimeout(_GOOD_BYE_S)
                self._socket.sendall(good_bye)
        except OSError:
            pass
        finally:
            if self._ahead is not None:
                self.interrupt()
                self._ahead.close()
            self._socket.close()

    def _lost(self, error: OSError) -> RetriableError:
        return RetriableError(f"the connection to {self.address} is lost: {error.strerror or error}")


def _connected(address: ServerAddress) -> socket.socket:
    try:
        if address.socket_path:
            opened = socket.socket(socket.AF_UNIX)
            opened.settimeout(address.connect_timeout_s)
            opened.connect(address.socket_path)
            return opened
        opened = socket.create_connection((address.host, address.port), address.connect_timeout_s)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return opened
    except OSError as error:
        raise RetriableError(f"{address} cannot be reached: {error.strerror or error}") from error


def _tls(address: ServerAddress) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if address.sslrootcert:
        try:
            context.load_verify_locations(address.sslrootcert)
        except OSError as error:
            raise ConfigError(
                f"sslrootcert={address.sslrootcert} cannot be read: {error.strerror or error}"
            ) from None
    if address.sslmode is not SslMode.VERIFY_FULL:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
