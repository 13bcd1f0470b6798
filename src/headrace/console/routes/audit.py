"""Reading the audit topic, the newest change first."""

from typing import Any

import orjson
from starlette.responses import Response

from headrace.console.api import (
    Call,
    Parameter,
    Route,
    RouteResponse,
    Schema,
    array,
    integer,
    json_response,
    nullable,
    object_of,
    ref,
)
from headrace.console.ask.records import PageLimits, bounds, read_page
from headrace.console.context import ConsoleContext
from headrace.console.security import Role
from headrace.errors import RequestError
from headrace.wire import ErrorCode

__all__ = ["AUDIT_TOPIC", "ROUTES", "SCHEMAS"]

AUDIT_TOPIC = "__headrace_audit"


async def get_audit(call: Call) -> Response:
    return json_response(await call.context.workers.run(_page, call.context, call["limit"], call["cursor"]))


def _page(context: ConsoleContext, limit: int, before: int | None) -> dict[str, Any]:
    """The `limit` entries before an offset, newest first; blocks."""
    with context.clients.fetcher() as fetcher:
        try:
            first, end = bounds(fetcher, AUDIT_TOPIC)[0]
        except RequestError as error:
            if error.code != ErrorCode.unknown_topic_or_partition:
                raise
            return {"entries": [], "next": None}  # nothing was ever changed
        end = end if before is None else max(first, min(before, end))
        start = max(first, end - limit)
        limits = PageLimits(
            records=limit, bytes=context.settings.max_body_bytes, scan_bytes=context.settings.max_scan_bytes
        )
        page = read_page(fetcher, AUDIT_TOPIC, {0: start}, {0: end}, limits)
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
    known = found if isinstance(found, dict) else {"action": "a record not written by this API"}
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
        summary="Changes made through this API, newest first",
        handler=get_audit,
        parameters=(
            Parameter(
                name="limit",
                kind="integer",
                default=100,
                minimum=1,
                maximum=1_000,
                help="Maximum number of entries.",
            ),
            Parameter(name="cursor", kind="integer", minimum=0, help="`next` from the previous page."),
        ),
        answers={200: RouteResponse("Entries.", "AuditPage")},
    ),
)
