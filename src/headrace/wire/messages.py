"""Requests and responses as whole frames, with their headers."""

import struct
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from headrace.wire.apis import Api, name_of
from headrace.wire.codec import REQUEST, RESPONSE, decoder, encoder, is_flexible, read_tags
from headrace.wire.values import FIXED, Cursor, Fields, Frame, Reader, Writer, blob, checked

__all__ = ["Request", "decode_request", "encode_request", "encode_response", "response_body_reader"]

_SIZE_AND_ID = struct.Struct(">ii")
_ID_AND_LENGTH = struct.Struct(">ih")
_read_int16, _write_int16, _ = FIXED["int16"]
_read_int32, _write_int32, _ = FIXED["int32"]
# In every version, lest a broker that does not know the version cannot read the header.
_write_client_id = blob("string", False, True)[1]


class Request(NamedTuple):
    """One request as it came: whose, which API and version, and its decoded body."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: Fields
    client_host: str = ""
    local_address: tuple[str, int] = ("", 0)  # where the client reached us
    throttle_ms: int = 0  # how long its client's quota lets it wait
    session: Any = None  # who the client is, for a server that wants to know
    connection: int = 0  # on which it came; another connection of the time has another number
    refused: tuple[Any, ...] = ()  # parts of the answer that were decided before the handler was asked

    def __str__(self) -> str:
        return f"{name_of(self.api_key)} v{self.api_version} from {self.client_id or 'an unnamed client'}"


_body_decoder = cache(decoder)
_body_encoder = cache(encoder)


def decode_request(
    frame: bytes | bytearray | memoryview,
    api_key: int,
    version: int,
    *,
    client_host: str = "",
    local_address: tuple[str, int] = ("", 0),
    session: Any = None,
    connection: int = 0,
) -> Request:
    """The request in a frame (without its length); raises MalformedError.

    Bytes behind the request are ignored, as Kafka does: librdkafka sends some with
    a Metadata request for all topics.
    """
    cursor = Cursor(frame)
    read_header, read_body = _request_decoder(api_key, version)
    correlation_id, client_id = read_header(cursor)
    body = read_body(cursor)
    return Request(
        *(api_key, version, correlation_id, client_id, body, client_host, local_address),
        session=session,
        connection=connection,
    )


@cache
def _request_decoder(api_key: int, version: int) -> tuple[Callable[[Cursor], tuple[int, str | None]], Reader]:
    """What reads a request's header, and what reads its body."""
    flexible = is_flexible(api_key, version, REQUEST)
    return _read_flexible_header if flexible else _read_plain_header, decoder(api_key, version, REQUEST)


def _read_plain(cursor: Cursor) -> tuple[int, str | None]:
    """Correlation id and client id, which follow API key and version."""
    correlation_id, length = _ID_AND_LENGTH.unpack_from(cursor.buffer, 4)
    cursor.position = 4 + _ID_AND_LENGTH.size
    return correlation_id, None if length == -1 else cursor.take(length).decode()


def _read_flexible(cursor: Cursor) -> tuple[int, str | None]:
    found = _read_plain(cursor)
    if cursor.buffer[cursor.position]:
        read_tags(cursor, {}, {})
    else:
        cursor.position += 1
    return found


_read_plain_header, _read_flexible_header = checked(_read_plain), checked(_read_flexible)


def encode_response(api_key: int, version: int, correlation_id: int, fields: Mapping[str, Any]) -> Frame:
    """A whole response frame, its length included."""
    header_bytes, write_body = _response_encoder(api_key, version)
    out = Frame(header_bytes)  # zeros: no size yet, no correlation id, no tagged fields
    write_body(out, fields)
    size = len(out) - 4
    for _, deferred in out.deferred:
        size += deferred.size_bytes
    _SIZE_AND_ID.pack_into(out, 0, size, correlation_id)
    return out


@cache
def _response_encoder(api_key: int, version: int) -> tuple[int, Writer]:
    """The bytes of an answer's size and header, and what writes its body."""
    flexible = _response_header_is_flexible(api_key, version)
    return _SIZE_AND_ID.size + flexible, encoder(api_key, version, RESPONSE)


def _response_header_is_flexible(api_key: int, version: int) -> bool:
    """The answer to ApiVersions keeps the old header, so that any client can read it."""
    return api_key != Api.API_VERSIONS and is_flexible(api_key, version, RESPONSE)


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str, fields: Mapping[str, Any]
) -> Frame:
    """A whole request frame, its length included."""
    out = Frame(4)
    _write_int16(out, api_key)
    _write_int16(out, version)
    _write_int32(out, correlation_id)
    _write_client_id(out, client_id)
    if is_flexible(api_key, version, REQUEST):
        out.append(0)
    _body_encoder(api_key, version, REQUEST)(out, fields)
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    return out


@cache
def response_body_reader(api_key: int, version: int) -> tuple[Reader, Reader]:
    """Readers of a response's header and body, for clients."""

    def read_header(cursor: Cursor) -> Fields:
        header = Fields()
        header.__dict__["correlation_id"] = _read_int32(cursor)
        if _response_header_is_flexible(api_key, version):
            read_tags(cursor, {}, {})
        return header

    return read_header, _body_decoder(api_key, version, RESPONSE)
