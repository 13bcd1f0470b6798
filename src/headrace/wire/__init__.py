"""Kafka's protocol without I/O: frames to requests, replies to frames.

The schemas are kio's, folded into one table (`schemas`); the codec is ours. A
length read from the wire never sizes an allocation. One handler serves all
versions: a decoded body has every field of every version, absent ones at their
default, and a reply is a plain dict from which each version takes the fields it
knows.

Times are integers in milliseconds, error codes plain integers, the zero UUID
is None. May import `records`, `errors`.
"""

from headrace.wire.apis import Api, VersionRange, name_of, versions_of
from headrace.wire.codec import decoder, encoder
from headrace.wire.frame_assembler import SIZE_BYTES, SMALL_FRAME_BYTES, FrameAssembler, FrameBuffers
from headrace.wire.messages import (
    Request,
    decode_request,
    encode_request,
    encode_response,
    response_body_reader,
)
from headrace.wire.repeated_requests import FetchShape, ProduceShape
from headrace.wire.schemas import ErrorCode
from headrace.wire.values import Cursor, Deferred, Fields, Frame, MalformedError

__all__ = [
    "SIZE_BYTES",
    "SMALL_FRAME_BYTES",
    "Api",
    "Cursor",
    "Deferred",
    "ErrorCode",
    "FetchShape",
    "Fields",
    "Frame",
    "FrameAssembler",
    "FrameBuffers",
    "MalformedError",
    "ProduceShape",
    "Request",
    "VersionRange",
    "decode_request",
    "decoder",
    "encode_request",
    "encode_response",
    "encoder",
    "name_of",
    "response_body_reader",
    "versions_of",
]
