"""Requests and responses as whole frames, with their headers."""

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any

from headrace.wire.apis import name_of
from headrace.wire.codec import decoder, encoder, message
from headrace.wire.values import Cursor, Fields, Frame, Reader

__all__ = ["Request", "decode_request", "encode_request", "encode_response", "response_body_reader"]


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

    def __str__(self) -> str:
        return f"{name_of(self.api_key)} v{self.api_version} from {self.client_id or 'an unnamed client'}"


@cache
def _header_decoder(entity: Any) -> Reader:
    return decoder(entity.__header_schema__)


@cache
def _body_decoder(api_key: int, version: int) -> tuple[Reader, Reader]:
    entity = message(api_key, version, "request")
    return decoder(entity.__header_schema__), decoder(entity)


@cache
def _encoders(api_key: int, version: int, kind: str) -> tuple[Any, Any]:
    entity = message(api_key, version, kind)
    return encoder(entity.__header_schema__), encoder(entity)


def decode_header(frame: bytes | bytearray | memoryview, api_key: int, version: int) -> tuple[Fields, Cursor]:
    """The header of a request whose API and version were looked at already, and where the body starts."""
    cursor = Cursor(frame)
    header = _body_decoder(api_key, version)[0](cursor)
    return header, cursor


def decode_request(
    frame: bytes | bytearray | memoryview,
    api_key: int,
    version: int,
    *,
    client_host: str = "",
    local_address: tuple[str, int] = ("", 0),
) -> Request:
    """The request in a frame (without its length); raises MalformedError.

    Bytes behind the request are ignored, as Kafka does: librdkafka sends some with
    a Metadata request for all topics.
    """
    header, cursor = decode_header(frame, api_key, version)
    body = _body_decoder(api_key, version)[1](cursor)
    return Request(
        api_key=api_key,
        api_version=version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        body=body,
        client_host=client_host,
        local_address=local_address,
    )


def encode_response(api_key: int, version: int, correlation_id: int, fields: Mapping[str, Any]) -> Frame:
    """A whole response frame, its length included."""
    write_header, write_body = _encoders(api_key, version, "response")
    out = Frame(4)
    write_header(out, {"correlation_id": correlation_id})
    write_body(out, fields)
    size = len(out) - 4 + sum(deferred.size_bytes for _, deferred in out.deferred)
    out[:4] = size.to_bytes(4, "big")
    return out


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str, fields: Mapping[str, Any]
) -> Frame:
    """A whole request frame, its length included."""
    write_header, write_body = _encoders(api_key, version, "request")
    out = Frame(4)
    write_header(
        out,
        {
            "request_api_key": api_key,
            "request_api_version": version,
            "correlation_id": correlation_id,
            "client_id": client_id,
        },
    )
    write_body(out, fields)
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    return out


@cache
def response_body_reader(api_key: int, version: int) -> tuple[Reader, Reader]:
    """Readers of a response's header and body, for clients."""
    entity = message(api_key, version, "response")
    return _header_decoder(entity), decoder(entity)
