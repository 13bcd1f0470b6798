"""Rows of a view over HTTP: filtered, ordered, by pages, as JSON or CSV, and no older than a token."""

import asyncio
import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
from starlette.responses import Response

from headrace.app.description import ViewDescription
from headrace.console.parameters import Parameter
from headrace.console.problems import ProblemError
from headrace.console.routing import Answer, Call, Route, json_response
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
from headrace.console.selecting import (
    Segment,
    conditions,
    cursor_after,
    full_order,
    parse_order,
    read_cursor,
    segments_after,
)
from headrace.console.tokens import Positions, decode_token, encode_token, merged, missing
from headrace.console.view_state import not_built, reflected_to_json, watch_view
from headrace.console.views import VIEW
from headrace.errors import RequestError, RetriableError
from headrace.views import Condition, Order, Reflected, ViewSchema, ViewStore
from headrace.views.json_values import rows_to_json, to_json

__all__ = ["ROUTES", "SCHEMAS"]

CSV = "text/csv"
_DEFAULT_LIMIT = 100
_ATTEMPTS = 5
_MOST_HEADER_CHARACTERS = 4_000


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows of one moment, what they reflect, and the cursor after them; None at the end."""

    rows: pa.Table
    reflected: Reflected
    sequence: int
    next: str | None


async def read_rows(call: Call) -> Response:
    view = await call.here.workers.run(call.here.view, call["view"])
    wanted = merged(decode_token(each) for each in call["token"])
    deadline = asyncio.get_running_loop().time() + _wait_s(call)
    page = await call.here.workers.run(_read, call, view)
    asked = _asked(view, wanted, page.reflected)
    while missing(asked, page.reflected.offsets):
        await _wait_reflected(call, view, asked, deadline)
        page = await call.here.workers.run(_read, call, view)
    return await call.here.workers.run(_response, call, page)


def _wait_s(call: Call) -> float:
    return float(min(call["wait_ms"], call.here.settings.max_wait_ms)) / 1000


def _asked(view: ViewDescription, wanted: Positions, reflected: Reflected) -> dict[str, dict[int, int]]:
    """Of a token, what this view can reflect; raises ProblemError if that is nothing.

    A token may tell of several topics, for it follows a client through all its writes;
    each view waits for its own.
    """
    reads = {*reflected.offsets, *(each for each in [view.stream] if each is not None)}
    asked = {topic: dict(each) for topic, each in wanted.items() if topic in reads or not reads}
    if wanted and not asked:
        known, given = ", ".join(sorted(reads)), ", ".join(sorted(wanted))
        raise ProblemError(
            400,
            f"view {view.name!r} reads {known}; the token is of {given}",
            "read without the token, or give one of a write to what the view reads",
            kind="foreign-token",
        )
    return asked


async def _wait_reflected(call: Call, view: ViewDescription, asked: Positions, deadline: float) -> None:
    """Returns once the view reflects what is asked; raises ProblemError "not yet" at the deadline."""
    loop = asyncio.get_running_loop()
    async with watch_view(call.here, view).following() as watch:
        while True:
            version = watch.version
            reflected = watch.value.reflected.offsets if watch.value is not None else {}
            behind = missing(asked, reflected)
            if not behind:
                return
            left = deadline - loop.time()
            if left <= 0 or call.here.stopping.is_set():
                raise _not_yet(view.name, behind)
            await watch.wait_change(version, left)


def _not_yet(view: str, behind: Positions) -> ProblemError:
    offsets = sum(offset for each in behind.values() for offset in each.values())
    return ProblemError(
        409,
        f"view {view!r} does not reflect this token yet: {offsets} offsets are missing",
        "ask again, with a longer wait_ms, or see whether its application runs",
        kind="not-yet",
        members={"missing": {topic: dict(each) for topic, each in behind.items()}},
        headers={"Retry-After": "1"},
    )


# --- reading; blocks -----------------------------------------------------------------------------


def _read(call: Call, view: ViewDescription) -> RowPage:
    limit = min(call["limit"] or _DEFAULT_LIMIT, call.here.settings.max_rows)
    with call.here.store_of(view) as store:
        try:
            schema = store.schema(view.name)
        except RequestError:
            raise not_built(view.name) from None
        given = call.request.query_params.multi_items()
        where = conditions(schema.columns.names, given, _RESERVED)
        order = full_order(schema, parse_order(call["order"]))
        segments: list[Segment] = [()]
        if call["cursor"] is not None:
            segments = segments_after(order, read_cursor(schema, order, call["cursor"]))
        for _ in range(_ATTEMPTS):
            page = _read_once(store, schema, where, order, segments, limit)
            if page is not None:
                return page
    raise RetriableError(f"view {view.name!r} changed faster than it could be read; try again")


def _read_once(
    store: ViewStore,
    schema: ViewSchema,
    where: Sequence[Condition],
    order: Sequence[Order],
    segments: Sequence[Segment],
    limit: int,
) -> RowPage | None:
    """A page of one moment; None if the view changed while it was read."""
    sequence, reflected = store.last_sequence(schema.name), store.reflected(schema.name)
    parts: list[pa.Table] = [schema.columns.empty_table()]
    left = limit + 1  # one more tells whether there is a next page
    for segment in segments:
        found = store.snapshot(schema.name, where=[*where, *segment], order=order, limit=left)
        if found.reflected != reflected:
            return None
        parts.append(found.rows)
        left -= found.rows.num_rows
        if left <= 0:
            break
    rows = pa.concat_tables(parts)
    if store.last_sequence(schema.name) != sequence:
        return None
    page = rows.slice(0, limit)
    following = cursor_after(order, page) if rows.num_rows > limit else None
    return RowPage(page, reflected, sequence, following)


# --- answering -----------------------------------------------------------------------------------


def _response(call: Call, page: RowPage) -> Response:
    headers = {"Headrace-Sequence": str(page.sequence)}
    token = encode_token(page.reflected.offsets)
    if len(token) <= _MOST_HEADER_CHARACTERS:
        headers["Headrace-Reflects"] = token
    if call["format"] == "csv" or (call["format"] is None and call.wants(CSV)):
        if page.next is not None:
            headers["Headrace-Next"] = page.next
        headers["Content-Disposition"] = f'attachment; filename="{call["view"]}.csv"'
        return Response(_csv(page.rows), headers=headers, media_type=CSV)
    return json_response(
        {
            "rows": rows_to_json(page.rows),
            "reflected": reflected_to_json(page.reflected),
            "sequence": page.sequence,
            "next": page.next,
        },
        headers=headers,
    )


def _csv(rows: pa.Table) -> str:
    """RFC 4180 with a line of names; null is empty, what is nested is JSON."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(rows.column_names)
    columns = [[_cell(each) for each in to_json(column)] for column in rows.columns]
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return orjson.dumps(value).decode() if isinstance(value, dict | list | tuple) else value


# --- the table -----------------------------------------------------------------------------------

TOKEN = Parameter(
    name="token", repeated=True, help="Wait until the view reflects this write; give several to wait for all."
)
WAIT = Parameter(
    name="wait_ms",
    kind="integer",
    default=5_000,
    minimum=0,
    maximum=60_000,
    help="How long to wait for the token at most; then the answer is 409, not yet.",
)

_PARAMETERS = (
    VIEW,
    Parameter(name="order", help="Columns, the falling ones with a minus.", example="-revenue,region"),
    Parameter(name="limit", kind="integer", minimum=1, maximum=100_000, help="Most rows in the answer."),
    Parameter(name="cursor", help="`next` of the page before."),
    TOKEN,
    WAIT,
    Parameter(name="format", choices=("json", "csv"), help="Instead of the Accept header."),
)
_RESERVED = {each.name for each in _PARAMETERS if each.place == "query"}

SCHEMAS: dict[str, Schema] = {
    "RowPage": object_of(
        {
            "rows": array(mapping(ANYTHING)),
            "reflected": ref("Reflected"),
            "sequence": integer("Follow the view's changes from here."),
            "next": nullable(string("Cursor of the next page; null at the end.")),
        }
    ),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1/views/{view}/rows",
        role=Role.READER,
        tag="views",
        summary="Rows: column=value, column.ge=value, … filter them (eq ne lt le gt ge in prefix null)",
        handler=read_rows,
        parameters=_PARAMETERS,
        others=True,
        answers={
            200: Answer("Rows of one moment.", "RowPage", others={CSV: "Text"}),
            409: Answer("Not yet: the view does not reflect the token."),
        },
    ),
)
