"""Request bodies for any API and version: one item in every list, the same text in every name."""

from uuid import UUID

from headrace.wire import decode_request, encode_request
from headrace.wire.schemas import MESSAGES

TOPIC_ID = UUID(int=7)
SPECIAL = {"resource_type": 2, "acks": -1}  # a topic; and an answer is wanted


def filled(fields, version, text):
    """Values for all fields that a version has."""
    return {
        field.name: [value(field, version, text)] if field.array else value(field, version, text)
        for field in fields
        if field.first <= version <= field.last and field.tag is None
    }


def value(field, version, text):
    if field.kind == "struct":
        return filled(field.of, version, text)
    if field.kind == "string":
        return text
    if field.kind == "uuid":
        return TOPIC_ID
    if field.kind in ("bytes", "records"):
        return b""
    if field.kind == "bool":
        return False
    if field.name in SPECIAL:
        return SPECIAL[field.name]
    return field.default if isinstance(field.default, int) and not field.array else 0


def request(api_key, version, text, session=None):
    """A decoded request as a client would have sent it."""
    frame = encode_request(api_key, version, 1, "test", filled(MESSAGES[api_key].request, version, text))
    return decode_request(frame[4:], api_key, version, session=session)
