"""Writing over HTTP: records and CloudEvents into a topic, answered with where they are and a token."""

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from headrace.console.api import (
    ANYTHING,
    Call,
    Route,
    RouteBody,
    RouteResponse,
    Schema,
    array,
    integer,
    json_response,
    mapping,
    nullable,
    object_of,
    parse_rfc3339,
    ref,
    string,
)
from headrace.console.problems import ProblemError, problem_of
from headrace.console.routes.topics.topic_names import TOPIC, TOPIC_NAME, refuse_internal
from headrace.console.security import Role
from headrace.console.write.cloudevents import BATCH, STRUCTURED, event_records
from headrace.console.write.json_bodies import dump_json, parse_json_body
from headrace.console.write.tokens import encode_token
from headrace.console.write.writer import ProducerRecord, RecordMetadata, WriteOutcome
from headrace.errors import HeadraceError

__all__ = ["ROUTES", "SCHEMAS", "producer_record"]

_FIELDS = ("value", "value_base64", "key", "key_base64", "headers", "partition", "timestamp")
# Bodies above this are parsed on a thread.
_LARGE_BYTES = 64 * 1024


async def post_records(call: Call) -> Response:
    await _check_topic(call)
    kind = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ProblemError(415, f"the content type of the body is {kind or 'missing'}, not application/json")
    return await _write(call, await _parsed(call, lambda: _producer_records(parse_json_body(call.body))))


async def post_events(call: Call) -> Response:
    await _check_topic(call)
    headers = list(call.request.headers.items())
    kind = call.request.headers.get("content-type", "")
    return await _write(call, await _parsed(call, lambda: event_records(headers, kind, call.body)))


async def _parsed(call: Call, parse: Any) -> list[ProducerRecord]:
    records: list[ProducerRecord]
    records = parse() if len(call.body) < _LARGE_BYTES else await call.context.workers.run(parse)
    most = call.context.settings.max_records
    if len(records) > most:
        raise ProblemError(413, f"{len(records)} records in one request; the limit is {most}")
    return records


async def _check_topic(call: Call) -> None:
    """Raises ProblemError unless the topic exists and is not one of the system's own."""
    topic = call["topic"]
    if not TOPIC_NAME.fullmatch(topic):
        raise ProblemError(
            404, f"there is no topic {topic[:100]!r}; names are letters, digits, '.', '_' and '-'"
        )
    refuse_internal(topic, "write to another topic")
    await call.context.workers.run(call.context.clients.layout, topic)


async def _write(call: Call, records: list[ProducerRecord]) -> Response:
    topic = call["topic"]
    layout = await call.context.workers.run(call.context.clients.layout, topic)
    for index, record in enumerate(records):
        if record.partition is not None and record.partition not in layout.leaders:
            raise ProblemError(
                400, f"record {index}: {topic} has no partition {record.partition}", kind="bad-record"
            )
    outcomes = await call.context.writer.write(topic, records)
    answer = answer_of(topic, outcomes)
    failures = [each for each in outcomes if isinstance(each, HeadraceError)]
    call.notes.update(topic=topic, written=len(outcomes) - len(failures), failed=len(failures))
    if failures and len(failures) == len(outcomes):
        raise failures[0]
    return json_response(answer, 207 if failures else 200)


def answer_of(topic: str, outcomes: Sequence[WriteOutcome]) -> dict[str, Any]:
    """Each record's place or problem, and the token of those that were written."""
    ends: dict[int, int] = {}
    entries: list[dict[str, Any]] = []
    for each in outcomes:
        if isinstance(each, RecordMetadata):
            ends[each.partition] = max(ends.get(each.partition, 0), each.offset + 1)
            entries.append({"partition": each.partition, "offset": each.offset})
        else:
            entries.append({"error": problem_of(each).to_json()})
    return {"records": entries, "token": encode_token({topic: ends} if ends else {})}


# --- one record ----------------------------------------------------------------------------------


def _producer_records(body: Any) -> list[ProducerRecord]:
    if isinstance(body, dict) and "records" in body:
        listed = body["records"]
        if not isinstance(listed, list) or len(body) > 1:
            raise _bad("the body", 'must be {"records": […]} or one record')
        return [producer_record(each, f"record {index}") for index, each in enumerate(listed)]
    return [producer_record(body, "the record")]


def producer_record(given: Any, what: str) -> ProducerRecord:
    """A record as JSON describes it; raises ProblemError naming the field that is wrong."""
    if not isinstance(given, dict):
        raise _bad(what, "must be a JSON object")
    if unknown := given.keys() - set(_FIELDS):
        raise _bad(
            what, f"has the unknown field {sorted(unknown)[0][:80]!r}; the fields are {', '.join(_FIELDS)}"
        )
    if "value" not in given and "value_base64" not in given:
        raise _bad(what, "has neither value nor value_base64; for a null value, pass null")
    return ProducerRecord(
        value=_payload(given, "value", what),
        key=_payload(given, "key", what),
        headers=_headers(given.get("headers"), what),
        partition=_partition(given.get("partition"), what),
        timestamp_ms=_timestamp(given.get("timestamp"), what),
    )


def _payload(given: dict[str, Any], name: str, what: str) -> bytes | None:
    plain, encoded = given.get(name), given.get(f"{name}_base64")
    if plain is not None and encoded is not None:
        raise _bad(what, f"has both {name} and {name}_base64; pass only one")
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
        raise _bad(what, "has a key that is not a string; pass a string, or bytes as key_base64")
    return _encoded(plain, what)


def _headers(given: Any, what: str) -> tuple[tuple[str, bytes | None], ...]:
    if given is None:
        return ()
    if not isinstance(given, dict) or not all(isinstance(each, str | None) for each in given.values()):
        raise _bad(what, "has headers that are not an object of strings")
    for name in given:
        _encoded(name, what)
        if not name or "\0" in name:
            raise _bad(what, "has a header without a name, or with a NUL in it")
    return tuple((name, None if text is None else _encoded(text, what)) for name, text in given.items())


def _partition(given: Any, what: str) -> int | None:
    if given is None:
        return None
    if type(given) is not int or not 0 <= given < 1 << 31:
        raise _bad(what, "has a partition that is not a non-negative integer")
    return given


def _timestamp(given: Any, what: str) -> int | None:
    if given is None:
        return None
    if not isinstance(given, str):
        raise _bad(what, "has a timestamp that is not a string such as 2026-11-15T21:30:00Z")
    found = parse_rfc3339(given, f"timestamp of {what}")
    if found < 1:
        raise _bad(what, "has a timestamp before 1970")
    return found


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _bad(what, "has text that is not valid Unicode") from None


def _bad(what: str, cause: str) -> ProblemError:
    return ProblemError(400, f"{what} {cause}", kind="bad-record")


# --- the table -----------------------------------------------------------------------------------

SCHEMAS: dict[str, Schema] = {
    "Record": object_of(
        {
            "value": ANYTHING,
            "value_base64": string("Bytes, instead of JSON.", contentEncoding="base64"),
            "key": nullable(string("A string; determines the partition.")),
            "key_base64": string("Bytes, instead of a string.", contentEncoding="base64"),
            "headers": mapping(nullable(string())),
            "partition": integer(minimum=0, maximum=(1 << 31) - 1),
            "timestamp": string("RFC 3339. Default: the time of writing.", format="date-time"),
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
                "In the order in which they were sent.",
            ),
            "token": string("For reads that must reflect these records."),
        }
    ),
}

_WRITTEN = {
    200: RouteResponse("All records are on disk.", "Written"),
    207: RouteResponse("Some records are on disk; the others have an error.", "Written"),
    413: RouteResponse("The body or one of its records is too large."),
    415: RouteResponse("Unsupported content type."),
}

ROUTES = (
    Route(
        method="POST",
        path="/v1/topics/{topic}/records",
        role=Role.WRITER,
        tag="writing",
        summary="Write one record or many",
        handler=post_records,
        parameters=(TOPIC,),
        body=RouteBody("Records"),
        answers=_WRITTEN,
    ),
    Route(
        method="POST",
        path="/v1/topics/{topic}/events",
        role=Role.WRITER,
        tag="writing",
        summary="Write CloudEvents: structured, batched, or binary with ce- headers",
        handler=post_events,
        parameters=(TOPIC,),
        body=RouteBody("Events", media_types=(STRUCTURED, BATCH)),
        answers=_WRITTEN,
    ),
)
