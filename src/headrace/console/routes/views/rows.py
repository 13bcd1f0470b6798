"""Rows of a view over HTTP: filtered, ordered, by pages, as JSON or CSV, and no older than a token."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from starlette.responses import Response

from headrace.app.status import ViewDescription
from headrace.console.api import (
    ANYTHING,
    Call,
    Parameter,
    Route,
    RouteResponse,
    Schema,
    array,
    integer,
    json_response,
    mapping,
    nullable,
    object_of,
    ref,
    string,
)
from headrace.console.ask.view_state import not_built, reflected_for_api
from headrace.console.problems import ProblemError
from headrace.console.routes.views.row_selection import (
    CursorSegment,
    conditions,
    cursor_after,
    full_order,
    order_of,
    read_cursor,
    segments_after,
)
from headrace.console.routes.views.token_waits import TokenWait
from headrace.console.routes.views.views import VIEW
from headrace.console.security import Role
from headrace.console.write.tokens import decode_token, encode_token, merge_positions
from headrace.errors import RequestError, RetriableError
from headrace.views import (
    AsOf,
    Condition,
    Order,
    Reflected,
    Snapshot,
    ViewSchema,
    ViewStore,
    history_view,
    parse_as_of,
    read_as_of,
    rows_to_csv,
    rows_to_json,
)

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


async def get_rows(call: Call) -> Response:
    view = await call.context.workers.run(call.context.application.view, call["view"])
    wanted = merge_positions(decode_token(each) for each in call["token"])
    waiting = TokenWait(call, view, wanted, _wait_s(call))
    page = await call.context.workers.run(_read, call, view)
    while not await waiting.is_over(page.reflected):
        page = await call.context.workers.run(_read, call, view)
    return await call.context.workers.run(_response, call, page)


def _wait_s(call: Call) -> float:
    return float(min(call["wait_ms"], call.context.settings.max_wait_ms)) / 1000


# --- reading; blocks -----------------------------------------------------------------------------


def _read(call: Call, view: ViewDescription) -> RowPage:
    limit = min(call["limit"] or _DEFAULT_LIMIT, call.context.settings.max_rows)
    with call.context.application.store_of(view) as store:
        try:
            schema = store.schema(view.name)
        except RequestError:
            raise not_built(view.name) from None
        as_of = _as_of(call, view)
        given = call.request.query_params.multi_items()
        where = conditions(schema.columns.names, given, _RESERVED)
        order = full_order(schema, order_of(call["order"]))
        segments: list[CursorSegment] = [()]
        if call["cursor"] is not None:
            segments = segments_after(order, read_cursor(schema, order, call["cursor"]))
        for _ in range(_ATTEMPTS):
            page = _read_once(store, schema, where, order, segments, limit, as_of)
            if page is not None:
                return page
    raise RetriableError(f"view {view.name!r} changed faster than it could be read; try again")


def _read_once(
    store: ViewStore,
    schema: ViewSchema,
    where: Sequence[Condition],
    order: Sequence[Order],
    segments: Sequence[CursorSegment],
    limit: int,
    as_of: tuple[AsOf, int] | None = None,
) -> RowPage | None:
    """A page of one moment, or of a table as it was; None if the view changed while it was read."""
    sequence, reflected = store.last_sequence(schema.name), store.reflected(schema.name)
    parts: list[pa.Table] = [schema.columns.empty_table()]
    left = limit + 1  # one more tells whether there is a next page
    for segment in segments:
        asked = [*where, *segment]
        if as_of is None:
            found = store.snapshot(schema.name, where=asked, order=order, limit=left)
            if found.reflected != reflected:
                return None
        else:
            found = _as_it_was(store, schema.name, *as_of, where=asked, order=order, limit=left)
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


def _as_of(call: Call, view: ViewDescription) -> tuple[AsOf, int] | None:
    """When a table is to be read as it was, and how far back its history goes; raises ProblemError."""
    if call["as_of"] is None:
        return None
    if view.history_us is None:
        raise ProblemError(
            400,
            f"view {view.name!r} has no history",
            'declare its table with app.table(…, serve=True, history="7 days")',
            kind="no-history",
        )
    try:
        return parse_as_of(call["as_of"]), view.history_us
    except RequestError as error:
        raise ProblemError(400, str(error), kind="bad-as-of") from None


def _as_it_was(
    store: ViewStore,
    table: str,
    as_of: AsOf,
    keep_us: int,
    *,
    where: Sequence[Condition],
    order: Sequence[Order],
    limit: int,
) -> Snapshot:
    if history_view(table) not in store.views():
        raise not_built(history_view(table))
    try:
        return read_as_of(store, table, as_of, keep_us=keep_us, where=where, order=order, limit=limit)
    except RequestError as error:
        raise ProblemError(400, str(error), kind="outside-history") from None


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
        return Response(rows_to_csv(page.rows), headers=headers, media_type=CSV)
    return json_response(
        {
            "rows": rows_to_json(page.rows),
            "reflected": reflected_for_api(page.reflected),
            "sequence": page.sequence,
            "next": page.next,
        },
        headers=headers,
    )


# --- the table -----------------------------------------------------------------------------------

TOKEN = Parameter(
    name="token",
    repeated=True,
    help="Wait until the view reflects this write; repeat it to wait for several.",
)
WAIT = Parameter(
    name="wait_ms",
    kind="integer",
    default=5_000,
    minimum=0,
    maximum=60_000,
    help="How long to wait for the token; after that, the response is 409.",
)

_PARAMETERS = (
    VIEW,
    Parameter(
        name="order", help="Columns to sort by, with a minus for descending order.", example="-revenue,region"
    ),
    Parameter(name="limit", kind="integer", minimum=1, maximum=100_000, help="Maximum number of rows."),
    Parameter(name="cursor", help="`next` from the previous page."),
    TOKEN,
    WAIT,
    Parameter(
        name="as_of",
        help="For a table with a history: its rows at a time, or at offsets of its topic's partitions.",
        example="2026-01-31T12:00:00Z",
    ),
    Parameter(name="format", choices=("json", "csv"), help="Overrides the Accept header."),
)
_RESERVED = {each.name for each in _PARAMETERS if each.place == "query"}

SCHEMAS: dict[str, Schema] = {
    "RowPage": object_of(
        {
            "rows": array(mapping(ANYTHING)),
            "reflected": ref("Reflected"),
            "sequence": integer("Continue with the view's changes after this one."),
            "next": nullable(string("Cursor of the next page; null on the last.")),
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
        handler=get_rows,
        parameters=_PARAMETERS,
        others=True,
        answers={
            200: RouteResponse("A consistent snapshot of rows.", "RowPage", others={CSV: "Text"}),
            409: RouteResponse("The view does not reflect the token yet."),
        },
    ),
)
