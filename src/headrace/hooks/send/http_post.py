"""One POST over one connection, and the beginning of the response.

HTTP/1.1 with `Connection: close`, to an address that the caller chose: no proxies, redirects,
cookies or connection reuse. The receiver is not trusted: lines, headers and body are bounded,
an endless body is cut off, and the caller's timeout covers all of it.
"""

import asyncio
import contextlib
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["HttpConnection", "HttpResponse", "NotHttpError", "connect", "post"]

_LINE_BYTES = 16_384
_MAX_HEADERS = 200
_MAX_INTERIM = 10
_BODY_BYTES = 16_384
_BODY_TIMEOUT_S = 1.0
_SAID_LETTERS = 200
_STATUS = re.compile(rb"HTTP/1\.[0-9] ([1-9][0-9]{2})(?: .*)?")


class NotHttpError(Exception):
    """What came back is not an HTTP/1 response."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A status, the headers by their lower-case names, and the beginning of the body."""

    status: int
    headers: Mapping[str, str]
    said: str


HttpConnection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(address: str, port: int, *, tls: ssl.SSLContext | None, host: str) -> HttpConnection:
    """Connects to this address; with `tls`, its certificate must be for `host`. Raises OSError."""
    name = host if tls is not None else None
    return await asyncio.open_connection(address, port, ssl=tls, server_hostname=name, limit=_LINE_BYTES)


async def post(
    connected: HttpConnection, target: str, headers: Mapping[str, str], body: bytes
) -> HttpResponse:
    """Sends a request, reads the beginning of the response and closes; raises OSError, NotHttpError.

    Waits as long as the caller lets it.
    """
    reader, writer = connected
    try:
        writer.write(_request(target, headers, body))
        # A receiver may respond before it has read everything, and close: its response still counts.
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        return await _answer(reader)
    finally:
        writer.transport.abort()  # nothing of interest is left, and a graceful close could take long


def _request(target: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    lines += [f"content-length: {len(body)}", "connection: close", "", ""]
    return "\r\n".join(lines).encode("ascii") + body


async def _answer(reader: asyncio.StreamReader) -> HttpResponse:
    for _ in range(_MAX_INTERIM):
        status, headers = await _head(reader)
        if not 100 <= status < 200:
            return HttpResponse(status, headers, _shown(await _body(reader, headers), headers))
    raise NotHttpError("too many interim responses")


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    found = _STATUS.fullmatch(await _line(reader))
    if found is None:
        raise NotHttpError("the response is not HTTP/1")
    headers: dict[str, str] = {}
    for _ in range(_MAX_HEADERS):
        line = await _line(reader)
        if not line:
            return int(found[1]), headers
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    raise NotHttpError("the response has too many headers")


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readline()
    except ValueError:
        raise NotHttpError("the response has a line that is too long") from None
    if not line.endswith(b"\n"):
        raise NotHttpError(
            "the connection ended before the response did" if line else "there was no response"
        )
    return line.rstrip(b"\r\n")


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    """The beginning of a body, or less of it if it does not come at once: the status is known already."""
    length = headers.get("content-length", "")
    wanted = min(int(length[:9]), _BODY_BYTES) if length.isascii() and length.isdecimal() else _BODY_BYTES
    found = bytearray()
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            while len(found) < wanted and not found.endswith(b"\r\n0\r\n\r\n"):
                part = await reader.read(wanted - len(found))
                if not part:
                    break
                found += part
    return bytes(found)


def _shown(body: bytes, headers: Mapping[str, str]) -> str:
    """A line of the body, for people."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = body.partition(b"\r\n")[2]
    words = body[: 4 * _SAID_LETTERS].decode(errors="replace").split()
    return "".join(each for each in " ".join(words) if each.isprintable())[:_SAID_LETTERS]
