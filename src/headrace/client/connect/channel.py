"""One TCP connection to one broker: a request out, its response in."""

import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headrace.client.connect.login import Security, authenticate
from headrace.errors import RequestError, RetriableError
from headrace.wire import Api, Cursor, ErrorCode, Fields, encode_request, name_of, response_body_reader

__all__ = ["Channel"]

MAX_RESPONSE_BYTES = 1 << 30
_CLOSED = "it closed the connection, as a broker does that is stopping, or requires TLS or a login"


class Channel:
    """A synchronous connection; one request at a time, one thread at a time.

    Every failure of the connection, a timeout included, is a RetriableError and
    leaves the channel closed: a late response must not be taken for that of another
    request. With `security` it is encrypted and authenticated when it is opened; a
    broker that is not trusted, or does not trust this client, is a RequestError.
    """

    def __init__(
        self, host: str, port: int, *, client_id: str, timeout_ms: int, security: Security | None = None
    ) -> None:
        self.address = f"{host}:{port}"
        self._client_id = client_id
        self._correlation_id = 0
        self._timeout_s = timeout_ms / 1000
        try:
            self._socket = socket.create_connection((host, port), timeout=self._timeout_s)
        except OSError as error:
            raise RetriableError(
                f"cannot connect to {self.address}: {error}; is the log running there?"
            ) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if security is not None:
            try:
                self._secure(host, security)
            except BaseException:
                self.close()
                raise

    def _secure(self, host: str, security: Security) -> None:
        if security.tls is not None:
            try:
                self._socket = security.tls.wrap_socket(self._socket, server_hostname=host)
            except ssl.SSLError as error:
                raise self._tls_error(error) from error
            except OSError as error:
                raise RetriableError(f"{self.address} ended the connection: {error}") from error
        if security.user:
            wanted = self.request(Api.SASL_HANDSHAKE, 1, {"mechanism": security.mechanism})
            if wanted.error_code:
                offered = ", ".join(wanted.mechanisms) or "no login"
                raise RequestError(
                    f"login: {self.address} offers {offered}, not {security.mechanism}",
                    code=wanted.error_code,
                )
            authenticate(security, self._sasl_exchange)

    def _tls_error(self, error: ssl.SSLError) -> RequestError:
        if _is_alert(error):
            doubt = (
                "does it require a client certificate (client_certificate), from an authority that it trusts?"
            )
        else:
            doubt = "does it speak TLS, with a certificate that is trusted here?"
        return RequestError(
            f"{self.address}: no encrypted connection: {error.reason or error}; {doubt}",
            code=ErrorCode.network_exception,
        )

    def _sasl_exchange(self, message: bytes) -> bytes:
        answer = self.request(Api.SASL_AUTHENTICATE, 2, {"auth_bytes": message})
        if answer.error_code:
            raise RequestError(f"login: {answer.error_message}", code=answer.error_code)
        return bytes(answer.auth_bytes)

    def request(self, api: Api, version: int, fields: Mapping[str, Any], *, wait_ms: int = 0) -> Fields:
        """The decoded response; `wait_ms` is how long the broker may hold it back."""
        self.ask(api, version, fields)
        return self.answer(api, version, wait_ms=wait_ms)

    def ask(self, api: Api, version: int, fields: Mapping[str, Any]) -> None:
        """Sends a request, whose `answer` must be read before the next one."""
        self._correlation_id += 1
        frame = encode_request(api, version, self._correlation_id, self._client_id, fields)
        with self._failing(api):
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(frame)

    def answer(self, api: Api, version: int, *, wait_ms: int = 0) -> Fields:
        """The decoded response to the last request."""
        with self._failing(api):
            self._socket.settimeout(self._timeout_s + wait_ms / 1000)
            cursor = Cursor(self._receive())
        return self._decode(api, version, cursor)

    @contextmanager
    def _failing(self, api: Api) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.close()
            if isinstance(error, ssl.SSLError) and _is_alert(error):
                raise self._tls_error(error) from error
            raise RetriableError(f"{self.address} did not answer {name_of(api)}: {error}") from error

    def close(self) -> None:
        """Closes the connection; harmless when repeated."""
        self._socket.close()

    def _decode(self, api: Api, version: int, cursor: Cursor) -> Fields:
        read_header, read_body = response_body_reader(api, version)
        header = read_header(cursor)
        if header.correlation_id != self._correlation_id:
            self.close()
            raise RetriableError(
                f"{self.address} answered request {header.correlation_id}, not {self._correlation_id}"
            )
        body: Fields = read_body(cursor)
        return body

    def _receive(self) -> bytearray:
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        if not 0 < size <= MAX_RESPONSE_BYTES:
            raise ConnectionError(f"a response of {size} bytes is not Kafka's protocol")
        return self._receive_exactly(size)

    def _receive_exactly(self, size: int) -> bytearray:
        buffer = bytearray(size)
        view, position = memoryview(buffer), 0
        while position < size:
            received = self._socket.recv_into(view[position:])
            if received == 0:
                raise ConnectionError(_CLOSED)
            position += received
        return buffer


def _is_alert(error: ssl.SSLError) -> bool:
    """Whether the error is an alert of the peer. In TLS 1.3 it may come after the handshake: the client
    completes it before its certificate has been verified.
    """
    return "_ALERT_" in (error.reason or "")
