"""The changes of a view as they come, over SSE or a WebSocket, resumable by their numbers."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import orjson
from starlette.responses import Response
from starlette.websockets import WebSocket

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
from headrace.console.ask.view_state import ViewState, state_of, watch_view
from headrace.console.context import ConsoleContext
from headrace.console.problems import ProblemError
from headrace.console.push import (
    EVENT_STREAM,
    HEARTBEAT,
    EventStream,
    ReadCache,
    StreamEvent,
    resume_position,
    send_events,
    wait_pace,
)
from headrace.console.routes.views.views import VIEW
from headrace.console.security import Role
from headrace.errors import RequestError
from headrace.views import ChangeKind, ViewChange

__all__ = ["ROUTES", "SCHEMAS"]

_PAGE_CHANGES = 1_000


async def get_changes(call: Call) -> Response:
    """A page of changes, or the changes as they come for a client that asks for events."""
    view, since = await call.context.workers.run(_start, call)
    if call.wants(EVENT_STREAM):
        return EventStream(
            call.context.subscriptions, follow_view(call.context, view, since), call.check_still_allowed
        )
    return json_response(await call.context.workers.run(_page, call.context, view, since))


async def follow_changes(call: Call, socket: WebSocket) -> None:
    view, since = await call.context.workers.run(_start, call)
    await send_events(
        call.context.subscriptions, socket, follow_view(call.context, view, since), call.check_still_allowed
    )


async def follow_view(
    context: ConsoleContext, view: ViewDescription, since: int
) -> AsyncGenerator[StreamEvent, None]:
    """Every change after `since`, gathered into at most twenty events a second.

    `start` tells where it begins, `changes` brings changes, and `reset` tells that some
    are no longer kept or that the view was rebuilt: read it again, then apply the
    changes after the `sequence` of what was read.
    """
    watch = watch_view(context, view)
    loop = asyncio.get_running_loop()
    yield _event("start", {"sequence": since}, since)
    async with watch.following():
        while not context.stopping.is_set():
            began, version = loop.time(), watch.version
            try:
                page = await _next_page(context, view, watch.value, since)
            except RequestError as error:
                since = await context.workers.run(_newest, context, view)
                yield _event("reset", {"reason": str(error), "sequence": since}, since)
                continue
            if page is not None:
                since = int(page.id)
                yield page
                del page
                await wait_pace(began)
            elif not await watch.wait_change(version, context.settings.heartbeat_ms / 1000):
                yield HEARTBEAT


async def _next_page(
    context: ConsoleContext, view: ViewDescription, seen: ViewState | None, since: int
) -> StreamEvent | None:
    """The changes after `since`, the same event for all who stand there; None if there are none yet.

    Nothing is asked of the store as long as nothing new was seen in it.
    """
    if seen is None or seen.sequence == since:
        return None
    store = view.store.url if view.store is not None else ""
    shared: ReadCache[StreamEvent | None]
    shared = context.read_caches.of(("changes", view.name, store, str(seen.reflected.query_id)))
    return await shared.get(str(since), partial(_read, context, view, since))


async def _read(context: ConsoleContext, view: ViewDescription, since: int) -> StreamEvent | None:
    async with context.page_reads:
        return await context.workers.run(_encoded, context, view, since)


def _event(name: str, body: dict[str, Any], sequence: int) -> StreamEvent:
    return StreamEvent(name, orjson.dumps(body), str(sequence))


# --- these block ---------------------------------------------------------------------------------


def _start(call: Call) -> tuple[ViewDescription, int]:
    """The view, and the number after which to begin: where the subscriber was, else now."""
    view = call.context.application.view(call["view"])
    position = resume_position(call.request.headers, call["since"])
    with call.context.application.store_of(view) as store:
        newest = state_of(store, view.name).sequence
        try:
            store.changes(view.name, newest, 1)
        except RequestError as error:
            if state_of(store, view.name).sequence == newest:
                raise ProblemError(
                    409, str(error), "keep the view in SQLite or PostgreSQL", kind="no-changes"
                ) from error
    if position is None:
        return view, newest
    if not (position.isascii() and position.isdigit() and len(position) <= 18):
        raise ProblemError(400, f"{position[:40]!r} is not the number of a change", kind="bad-position")
    return view, int(position)


def _page(context: ConsoleContext, view: ViewDescription, since: int) -> dict[str, Any]:
    with context.application.store_of(view) as store:
        try:
            found = store.changes(view.name, since, _PAGE_CHANGES)
        except RequestError as error:
            raise ProblemError(
                410,
                str(error),
                "read the view's rows, then continue from their sequence",
                kind="changes-gone",
            ) from error
    last = found[-1].sequence if found else since
    return {"changes": [_change_to_json(each) for each in found], "sequence": last}


def _newest(context: ConsoleContext, view: ViewDescription) -> int:
    with context.application.store_of(view) as store:
        return state_of(store, view.name).sequence


def _encoded(context: ConsoleContext, view: ViewDescription, since: int) -> StreamEvent | None:
    """The event of the changes after `since`, bounded in bytes; its id is the number of the last."""
    with context.application.store_of(view) as store:
        found = store.changes(view.name, since, _PAGE_CHANGES)
    if not found:
        return None
    parts: list[bytes] = []
    size, last = 0, since
    for each in found:
        part = orjson.dumps(_change_to_json(each))
        if parts and size + len(part) > context.settings.event_bytes:
            break
        parts.append(part)
        size += len(part)
        last = each.sequence
    body = b'{"changes":[' + b",".join(parts) + b'],"sequence":' + str(last).encode() + b"}"
    return StreamEvent("changes", body, str(last))


def _change_to_json(change: ViewChange) -> dict[str, Any]:
    return {
        "sequence": change.sequence,
        "batch_id": change.batch_id,
        "kind": ChangeKind(change.kind).name.lower(),
        "key": change.key,
        "before": change.before,
        "after": change.after,
    }


# --- the table -----------------------------------------------------------------------------------

SCHEMAS: dict[str, Schema] = {
    "Change": object_of(
        {
            "sequence": integer(),
            "batch_id": integer(),
            "kind": string(enum=[each.name.lower() for each in ChangeKind]),
            "key": mapping(ANYTHING),
            "before": nullable(mapping(ANYTHING)),
            "after": nullable(mapping(ANYTHING)),
        }
    ),
    "ChangePage": object_of(
        {"changes": array(ref("Change")), "sequence": integer("Pass this as `since` to continue.")}
    ),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1/views/{view}/changes",
        role=Role.READER,
        tag="views",
        summary="Changes of a view: a page, or with Accept: text/event-stream a stream; also a WebSocket",
        handler=get_changes,
        socket=follow_changes,
        parameters=(
            VIEW,
            Parameter(
                name="since",
                help="Start after the change with this number; the header Last-Event-ID takes precedence.",
                example="41",
            ),
        ),
        answers={
            200: RouteResponse("A page, or an event stream.", "ChangePage", others={EVENT_STREAM: "Text"}),
            409: RouteResponse("The view's store keeps no changes."),
            410: RouteResponse("Changes after this number are no longer kept, or the view was rebuilt."),
        },
    ),
)
