"""Reading the audit topic, the newest change first."""

from typing import Any

import orjson
from starlette.responses import Response

from headrace.console.audit import TOPIC
from headrace.console.parameters import Parameter
from headrace.console.reading import Limits, bounds, read_page
from headrace.console.routing import Answer, Call, Route, json_response
from headrace.console.schemas import Schema, array, integer, nullable, object_of, ref
from headrace.console.security import Role
from headrace.console.surroundings import Surroundings
from headrace.errors import RequestError
from headrace.wire import ErrorCode

__all__ = ["ROUTES", "SCHEMAS"]


async def read_audit(call: Call) -> Response:
    return json_response(await call.here.workers.run(_page, call.here, call["limit"], call["cursor"]))


def _page(here: Surroundings, limit: int, before: int | None) -> dict[str, Any]:
    """The `limit` entries before an offset, newest first; blocks."""
    with here.fetcher() as fetcher:
        try:
            first, end = bounds(fetcher, TOPIC)[0]
        except RequestError as error:
            if error.code != ErrorCode.unknown_topic_or_partition:
                raise
            return {"entries": [], "next": None}  # nothing was ever changed
        end = end if before is None else max(first, min(before, end))
        start = max(first, end - limit)
        limits = Limits(
            records=limit, bytes=here.settings.max_body_bytes, scan_bytes=here.settings.max_scan_bytes
        )
        page = read_page(fetcher, TOPIC, {0: start}, {0: end}, limits)
    entries = [
        {"partition": each.partition, "offset": each.record.offset, **_entry(each.record.value)}
        for each in reversed(page.records)
    ]
    return {"entries": entries, "next": start if start > first else None}


def _entry(value: bytes | None) -> dict[str, Any]:
    """What a record of the topic says; anybody with a Kafka client can write there, so it may be anything."""
    try:
        found = orjson.loads(value or b"null")
    except orjson.JSONDecodeError:
        found = None
    known = found if isinstance(found, dict) else {"action": "a record that this API did not write"}
    return {name: known.get(name) for name in _FIELDS}


_FIELDS = ("at", "who", "role", "from", "action", "target", "given", "outcome", "status", "notes")

SCHEMAS: dict[str, Schema] = {
    "AuditEntry": object_of({"partition": integer(), "offset": integer(), **{each: {} for each in _FIELDS}}),
    "AuditPage": object_of(
        {"entries": array(ref("AuditEntry")), "next": nullable(integer("Cursor of older entries."))}
    ),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1/audit",
        role=Role.ADMIN,
        tag="audit",
        summary="Changes made through this API, the newest first",
        handler=read_audit,
        parameters=(
            Parameter(
                name="limit", kind="integer", default=100, minimum=1, maximum=1_000, help="Most entries."
            ),
            Parameter(name="cursor", kind="integer", minimum=0, help="`next` of the page before."),
        ),
        answers={200: Answer("Entries.", "AuditPage")},
    ),
)
