"""CloudEvents 1.0 over HTTP, as records in Kafka's binding. Pure.

Of HTTP's three modes (structured, batched, binary) the same record comes out: Kafka's
binary mode, with the attributes as headers `ce_…`, the data as value, `content-type`
as header, and the extension `partitionkey` as key.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from headrace.console.problems import ProblemError
from headrace.console.write.json_bodies import dump_json, parse_json_body
from headrace.console.write.writer import ProducerRecord

__all__ = ["BATCH", "STRUCTURED", "event_records"]

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"

_REQUIRED = ("id", "source", "specversion", "type")
_NAME = re.compile(r"[a-z0-9]{1,64}", re.ASCII)
_DATA = ("data", "data_base64")
_JSON = re.compile(r"application/json|[a-z0-9.+-]+/[a-z0-9.-]+\+json|text/json", re.ASCII | re.IGNORECASE)


def event_records(headers: Iterable[tuple[str, str]], content_type: str, body: bytes) -> list[ProducerRecord]:
    """The records of a request in any of the three modes; raises ProblemError saying what is wrong."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == STRUCTURED:
        return [_structured(parse_json_body(body), "the event")]
    if kind == BATCH:
        events = parse_json_body(body)
        if not isinstance(events, list):
            raise _bad("a batch must be a JSON array of events")
        return [_structured(each, f"event {index}") for index, each in enumerate(events)]
    attributes = {
        name[3:]: unquote(value) for name, value in headers if name.startswith("ce-") and len(name) > 3
    }
    if not attributes:
        raise ProblemError(
            415,
            f"this is not a CloudEvent: Content-Type is {kind or 'missing'}, and there are no ce- headers",
            f"send {STRUCTURED}, {BATCH}, or headers ce-id, ce-source, ce-specversion and ce-type",
        )
    if content_type:
        attributes["datacontenttype"] = content_type
    return [_record(attributes, body, "the event")]


def _structured(event: Any, what: str) -> ProducerRecord:
    if not isinstance(event, dict):
        raise _bad(f"{what} is not a JSON object")
    if all(name in event for name in _DATA):
        raise _bad(f"{what} has both data and data_base64; pass only one")
    present = {name: value for name, value in event.items() if name not in _DATA and value is not None}
    attributes = {name: _text(name, value, what) for name, value in present.items()}
    return _record(attributes, _data(event, attributes, what), what)


def _data(event: Mapping[str, Any], attributes: Mapping[str, str], what: str) -> bytes | None:
    if "data_base64" in event:
        try:
            return base64.b64decode(event["data_base64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise _bad(f"data_base64 of {what} is not base64") from None
    if "data" not in event:
        return None
    kind = attributes.get("datacontenttype", "application/json").partition(";")[0].strip()
    if isinstance(event["data"], str) and not _JSON.fullmatch(kind):
        return _encoded(event["data"], what)
    return dump_json(event["data"])


def _record(attributes: Mapping[str, str], value: bytes | None, what: str) -> ProducerRecord:
    for name in _REQUIRED:
        if not attributes.get(name):
            raise _bad(f"{what} has no {name}; it needs {', '.join(_REQUIRED)}")
    if attributes["specversion"] != "1.0":
        raise _bad(f"{what} has specversion {attributes['specversion']!r}; only 1.0 is supported")
    key = attributes.get("partitionkey")
    headers = [(f"ce_{_name(name, what)}", _encoded(text, what)) for name, text in sorted(attributes.items())]
    headers = [each for each in headers if each[0] != "ce_datacontenttype"]
    if "datacontenttype" in attributes:
        headers.append(("content-type", _encoded(attributes["datacontenttype"], what)))
    return ProducerRecord(
        value=value, key=None if key is None else _encoded(key, what), headers=tuple(headers)
    )


def _name(name: str, what: str) -> str:
    if not _NAME.fullmatch(name):
        raise _bad(f"{what}: {name[:80]!r} is not an attribute name; use lower-case letters and digits")
    return name


def _text(name: str, value: Any, what: str) -> str:
    """An attribute's value in its text form, as bindings carry it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise _bad(f"attribute {name[:80]!r} of {what} must be a string, an integer or a boolean")


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _bad(f"{what} has text that is not valid Unicode") from None


def _bad(cause: str) -> ProblemError:
    return ProblemError(400, cause, "see https://cloudevents.io, version 1.0", kind="bad-event")
