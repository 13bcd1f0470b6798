"""Writing over HTTP: records and CloudEvents into a topic, answered with where they are and a token."""

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from headrace.console.cloudevents import BATCH, STRUCTURED, event_records
from headrace.console.json_bodies import dump_json, parse_json
from headrace.console.parameters import Parameter, parse_time
from headrace.console.problems import ProblemError, problem_of
from headrace.console.routing import Answer, Body, Call, Route, json_response
from headrace.console.schemas import (
    ANYTHING,
    Schema,
    array,
    integer,
    mapping,
    nullable,
    object_of,
    ref,
    string,
)
from headrace.console.security import Role
from headrace.console.tokens import encode_token
from headrace.console.writing import Outcome, OutRecord, Placed
from headrace.errors import HeadraceError

__all__ = ["ROUTES", "SCHEMAS", "out_record"]

_FIELDS = ("value", "value_base64", "key", "key_base64", "headers", "partition", "timestamp")
# Bodies above this are parsed on a thread.
_LARGE_BYTES = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


async def write_records(call: Call) -> Response:
    await _check_topic(call)
    kind = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ProblemError(415, f"the body is {kind or 'of no stated type'}, not application/json")
    return await _write(call, await _parsed(call, lambda: _out_records(parse_json(call.body))))


async def write_events(call: Call) -> Response:
    await _check_topic(call)
    headers = list(call.request.headers.items())
    kind = call.request.headers.get("content-type", "")
    return await _write(call, await _parsed(call, lambda: event_records(headers, kind, call.body)))


async def _parsed(call: Call, parse: Any) -> list[OutRecord]:
    records: list[OutRecord]
    records = parse() if len(call.body) < _LARGE_BYTES else await call.here.workers.run(parse)
    most = call.here.settings.max_records
    if len(records) > most:
        raise ProblemError(413, f"{len(records)} records in one request; at most {most} are taken")
    return records


async def _check_topic(call: Call) -> None:
    """Raises ProblemError unless the topic exists and is not one of the system's own."""
    topic = call["topic"]
    if not _NAME.fullmatch(topic):
        raise ProblemError(
            404, f"there is no topic {topic[:100]!r}; names are letters, digits, '.', '_' and '-'"
        )
    if topic.startswith("__"):
        raise ProblemError(403, f"{topic} is kept by the system itself", "write to a topic of your own")
    await call.here.workers.run(call.here.layout, topic)


async def _write(call: Call, records: list[OutRecord]) -> Response:
    topic = call["topic"]
    layout = await call.here.workers.run(call.here.layout, topic)
    for index, record in enumerate(records):
        if record.partition is not None and record.partition not in layout.leaders:
            raise ProblemError(
                400, f"record {index}: {topic} has no partition {record.partition}", kind="bad-record"
            )
    outcomes = await call.here.writer.write(topic, records)
    answer = answer_of(topic, outcomes)
    failures = [each for each in outcomes if isinstance(each, HeadraceError)]
    call.notes.update(topic=topic, written=len(outcomes) - len(failures), failed=len(failures))
    if failures and len(failures) == len(outcomes):
        raise failures[0]
    return json_response(answer, 207 if failures else 200)


def answer_of(topic: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Each record's place or problem, and the token of those that were written."""
    ends: dict[int, int] = {}
    entries: list[dict[str, Any]] = []
    for each in outcomes:
        if isinstance(each, Placed):
            ends[each.partition] = max(ends.get(each.partition, 0), each.offset + 1)
            entries.append({"partition": each.partition, "offset": each.offset})
        else:
            entries.append({"error": problem_of(each).to_json()})
    return {"records": entries, "token": encode_token({topic: ends} if ends else {})}


# --- one record ----------------------------------------------------------------------------------


def _out_records(body: Any) -> list[OutRecord]:
    if isinstance(body, dict) and "records" in body:
        listed = body["records"]
        if not isinstance(listed, list) or len(body) > 1:
            raise _bad("the body", 'must be {"records": […]} or one record')
        return [out_record(each, f"record {index}") for index, each in enumerate(listed)]
    return [out_record(body, "the record")]


def out_record(given: Any, what: str) -> OutRecord:
    """A record as JSON describes it; raises ProblemError naming the field that is wrong."""
    if not isinstance(given, dict):
        raise _bad(what, "must be a JSON object")
    if unknown := given.keys() - set(_FIELDS):
        raise _bad(what, f"has {sorted(unknown)[0][:80]!r}; there is {', '.join(_FIELDS)}")
    if "value" not in given and "value_base64" not in given:
        raise _bad(what, "has neither value nor value_base64; a null value is written as null")
    return OutRecord(
        value=_payload(given, "value", what),
        key=_payload(given, "key", what),
        headers=_headers(given.get("headers"), what),
        partition=_partition(given.get("partition"), what),
        timestamp_ms=_timestamp(given.get("timestamp"), what),
    )


def _payload(given: dict[str, Any], name: str, what: str) -> bytes | None:
    plain, encoded = given.get(name), given.get(f"{name}_base64")
    if plain is not None and encoded is not None:
        raise _bad(what, f"has both {name} and {name}_base64; give one")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise _bad(what, f"has a {name}_base64 that is not base64") from None
    if plain is None:
        return None
    if name == "value":
        return dump_json(plain)
    if not isinstance(plain, str):
        raise _bad(what, "has a key that is not text; give text, or bytes as key_base64")
    return _encoded(plain, what)


def _headers(given: Any, what: str) -> tuple[tuple[str, bytes | None], ...]:
    if given is None:
        return ()
    if not isinstance(given, dict) or not all(isinstance(each, str | None) for each in given.values()):
        raise _bad(what, "has headers that are not an object of texts")
    for name in given:
        _encoded(name, what)
        if not name or "\0" in name:
            raise _bad(what, "has a header without a name, or with a NUL in it")
    return tuple((name, None if text is None else _encoded(text, what)) for name, text in given.items())


def _partition(given: Any, what: str) -> int | None:
    if given is None:
        return None
    if type(given) is not int or not 0 <= given < 1 << 31:
        raise _bad(what, "has a partition that is not a number from 0 on")
    return given


def _timestamp(given: Any, what: str) -> int | None:
    if given is None:
        return None
    if not isinstance(given, str):
        raise _bad(what, "has a timestamp that is not text, such as 2026-11-15T21:30:00Z")
    found = parse_time(given, f"timestamp of {what}")
    if found < 1:
        raise _bad(what, "has a timestamp before 1970")
    return found


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _bad(what, "has text that is no Unicode") from None


def _bad(what: str, cause: str) -> ProblemError:
    return ProblemError(400, f"{what} {cause}", kind="bad-record")


# --- the table -----------------------------------------------------------------------------------

TOPIC = Parameter(name="topic", place="path", help="Name of the topic.", example="orders")

SCHEMAS: dict[str, Schema] = {
    "Record": object_of(
        {
            "value": ANYTHING,
            "value_base64": string("Bytes instead of JSON.", contentEncoding="base64"),
            "key": nullable(string("Text; picks the partition.")),
            "key_base64": string("Bytes instead of text.", contentEncoding="base64"),
            "headers": mapping(nullable(string())),
            "partition": integer(minimum=0, maximum=(1 << 31) - 1),
            "timestamp": string("RFC 3339; the moment of writing if left out.", format="date-time"),
        },
        optional=_FIELDS,
    ),
    "Records": {
        "anyOf": [object_of({"records": array(ref("Record"))}), ref("Record")],
    },
    "Event": {
        "type": "object",
        "description": "A CloudEvent 1.0 in JSON.",
        "properties": {
            "id": string(minLength=1),
            "source": string(minLength=1),
            "specversion": string(enum=["1.0"]),
            "type": string(minLength=1),
            "data": ANYTHING,
            "data_base64": string(),
        },
        "required": ["id", "source", "specversion", "type"],
    },
    "Events": {"anyOf": [ref("Event"), array(ref("Event"))]},
    "Written": object_of(
        {
            "records": array(
                {
                    "anyOf": [
                        object_of({"partition": integer(), "offset": integer()}),
                        object_of({"error": ref("Problem")}),
                    ]
                },
                "In the order they were sent.",
            ),
            "token": string("For reads that must reflect these records."),
        }
    ),
}

_WRITTEN = {
    200: Answer("All are on disk.", "Written"),
    207: Answer("Some are; the others have an error each.", "Written"),
    413: Answer("The body or one of its records is too large."),
    415: Answer("The body is of another type."),
}

ROUTES = (
    Route(
        method="POST",
        path="/v1/topics/{topic}/records",
        role=Role.WRITER,
        tag="writing",
        summary="Write one record or many",
        handler=write_records,
        parameters=(TOPIC,),
        body=Body("Records"),
        answers=_WRITTEN,
    ),
    Route(
        method="POST",
        path="/v1/topics/{topic}/events",
        role=Role.WRITER,
        tag="writing",
        summary="Write CloudEvents: structured, batched, or binary with ce- headers",
        handler=write_events,
        parameters=(TOPIC,),
        body=Body("Events", media_types=(STRUCTURED, BATCH)),
        answers=_WRITTEN,
    ),
)
