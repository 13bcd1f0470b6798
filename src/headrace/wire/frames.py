"""Requests and responses as whole frames, with their headers."""

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any

from headrace.wire.apis import Api, name_of
from headrace.wire.codec import REQUEST, RESPONSE, decoder, encoder, is_flexible, read_tags
from headrace.wire.values import FIXED, Cursor, Fields, Frame, Reader, blob, checked

__all__ = ["Request", "decode_request", "encode_request", "encode_response", "response_body_reader"]

_read_int16, _write_int16, _ = FIXED["int16"]
_read_int32, _write_int32, _ = FIXED["int32"]
# In every version, lest a broker that does not know the version cannot read the header.
_read_client_id, _write_client_id = blob("string", False, True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
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
    read_header = _read_flexible_header if is_flexible(api_key, version, REQUEST) else _read_plain_header
    correlation_id, client_id = read_header(cursor)
    return Request(
        api_key=api_key,
        api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
        body=_body_decoder(api_key, version, REQUEST)(cursor),
        client_host=client_host,
        local_address=local_address,
        session=session,
        connection=connection,
    )


@checked
def _read_plain_header(cursor: Cursor) -> tuple[int, str | None]:
    """Correlation id and client id, which follow API key and version."""
    cursor.position = 4
    return _read_int32(cursor), _read_client_id(cursor)


@checked
def _read_flexible_header(cursor: Cursor) -> tuple[int, str | None]:
    correlation_id, client_id = _read_plain_header(cursor)
    read_tags(cursor, {}, {})
    return correlation_id, client_id


def encode_response(api_key: int, version: int, correlation_id: int, fields: Mapping[str, Any]) -> Frame:
    """A whole response frame, its length included."""
    out = Frame(4)
    _write_int32(out, correlation_id)
    if _response_header_is_flexible(api_key, version):
        out.append(0)
    _body_encoder(api_key, version, RESPONSE)(out, fields)
    size = len(out) - 4 + sum(deferred.size_bytes for _, deferred in out.deferred)
    out[:4] = size.to_bytes(4, "big")
    return out


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
