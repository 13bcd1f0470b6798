"""A connection to an HTTP server that takes and gives JSON: one request at a time.

Blocking. What the network or the server's restart does is a RetriableError; other answers are the
caller's to judge.
"""

import http.client
import ssl
from base64 import b64encode
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import orjson

from headrace.errors import ConfigError, RetriableError
from headrace.secret_references import is_reference, resolve

__all__ = ["HttpAddress", "HttpConnection"]

_TIMEOUT_S = 60.0
_OPTIONS = ("password", "sslrootcert")
_PASSING = (408, 429, 502, 503, 504)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAddress:
    """A server, and how to log in; may be stored, logged and shown."""

    host: str
    port: int
    encrypted: bool = False
    user: str = ""
    password: str = ""
    sslrootcert: str = ""

    @classmethod
    def parse(cls, url: str) -> "HttpAddress":
        """Raises ConfigError, which never repeats the URL, for what does not fit."""
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := sorted(set(options) - set(_OPTIONS)):
            raise ConfigError(f"unknown in the URL: {', '.join(unknown)}; known are {', '.join(_OPTIONS)}")
        password = options.get("password", "")
        if password and not is_reference(password):
            raise ConfigError("password= says where the password is, env:NAME or file:PATH, not what it is")
        encrypted = parts.scheme == "https"
        try:
            port = parts.port or (443 if encrypted else 9200)
        except ValueError:
            raise ConfigError("the port in the URL is a number from 1 to 65535") from None
        return cls(
            host=parts.hostname or "127.0.0.1",
            port=port,
            encrypted=encrypted,
            user=unquote(parts.username or ""),
            password=password,
            sslrootcert=options.get("sslrootcert", ""),
        )

    def headers(self) -> dict[str, str]:
        """What every request says, the login among it; ConfigError if the password leads nowhere."""
        if not self.user:
            return {}
        password = resolve(self.password, f"the password of {self}") if self.password else ""
        return {"Authorization": f"Basic {b64encode(f'{self.user}:{password}'.encode()).decode()}"}

    def __str__(self) -> str:
        return f"{'https' if self.encrypted else 'http'}://{self.host}:{self.port}"


class HttpConnection:
    """One connection, opened when it is first used and after a failure."""

    def __init__(self, address: HttpAddress) -> None:
        self.address = address
        self._headers = address.headers()
        self._opened: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: bytes = b"", kind: str = "json") -> tuple[int, Any]:
        """The status and the document of the answer."""
        headers = {**self._headers, "Content-Type": f"application/{kind}"}
        try:
            connection = self._connection()
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            said = answer.read()
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise ConfigError(
                f"the certificate of {self.address} is not accepted: {error.verify_message}; name the "
                "authority that signed it with sslrootcert=PATH"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise RetriableError(f"{self.address} cannot be reached: {error}") from error
        if answer.status in _PASSING:
            raise RetriableError(f"{self.address} answers {answer.status}: {_excerpt(said)}")
        try:
            return answer.status, orjson.loads(said) if said else {}
        except ValueError as error:
            raise ConfigError(
                f"{self.address} answers {answer.status} without JSON: {_excerpt(said)}"
            ) from error

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _connection(self) -> http.client.HTTPConnection:
        if self._opened is None:
            self._opened = self._made()
        return self._opened

    def _made(self) -> http.client.HTTPConnection:
        host, port = self.address.host, self.address.port
        if not self.address.encrypted:
            return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
        try:
            context = ssl.create_default_context(cafile=self.address.sslrootcert or None)
        except OSError as error:
            path = self.address.sslrootcert
            raise ConfigError(f"sslrootcert={path} cannot be read: {error.strerror}") from None
        return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)


def _excerpt(said: bytes) -> str:
    return said[:300].decode(errors="replace")
