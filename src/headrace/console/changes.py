"""The changes of a view as they come, over SSE or a WebSocket, resumable by their numbers."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import orjson
from starlette.responses import Response
from starlette.websockets import WebSocket

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
from headrace.console.sharing import Shared
from headrace.console.streaming import (
    HEARTBEAT,
    MEDIA_TYPE,
    Event,
    EventStream,
    resume_position,
    send_events,
    wait_pace,
)
from headrace.console.surroundings import Surroundings
from headrace.console.view_state import ViewState, state_of, watch_view
from headrace.console.views import VIEW
from headrace.errors import RequestError
from headrace.views import Change, Kind

__all__ = ["ROUTES", "SCHEMAS"]

_PAGE_CHANGES = 1_000


async def read_changes(call: Call) -> Response:
    """A page of changes, or the changes as they come for whoever asks for events."""
    view, since = await call.here.workers.run(_start, call)
    if call.wants(MEDIA_TYPE):
        return EventStream(call, follow(call.here, view, since))
    return json_response(await call.here.workers.run(_page, call.here, view, since))


async def follow_changes(call: Call, socket: WebSocket) -> None:
    view, since = await call.here.workers.run(_start, call)
    await send_events(call, socket, follow(call.here, view, since))


async def follow(here: Surroundings, view: ViewDescription, since: int) -> AsyncGenerator[Event, None]:
    """Every change after `since`, gathered into at most twenty events a second.

    `start` tells where it begins, `changes` brings changes, and `reset` tells that some
    are no longer kept or that the view was rebuilt: read it again, then apply the
    changes after the `sequence` of what was read.
    """
    watch = watch_view(here, view)
    loop = asyncio.get_running_loop()
    yield _event("start", {"sequence": since}, since)
    async with watch.following():
        while not here.stopping.is_set():
            began, version = loop.time(), watch.version
            try:
                page = await _next_page(here, view, watch.value, since)
            except RequestError as error:
                since = await here.workers.run(_newest, here, view)
                yield _event("reset", {"reason": str(error), "sequence": since}, since)
                continue
            if page is not None:
                body, since = page
                yield Event("changes", body, str(since))
                await wait_pace(began)
            elif not await watch.wait_change(version, here.settings.heartbeat_ms / 1000):
                yield HEARTBEAT


async def _next_page(
    here: Surroundings, view: ViewDescription, seen: ViewState | None, since: int
) -> tuple[bytes, int] | None:
    """The changes after `since` for all who stand there; None if there are none yet.

    Nothing is asked of the store as long as nothing new was seen in it.
    """
    if seen is None or seen.sequence == since:
        return None
    store = view.store.url if view.store is not None else ""
    shared: Shared[tuple[bytes, int] | None]
    shared = here.shared.of(("changes", view.name, store, str(seen.reflected.query_id)))
    return await shared.get(str(since), partial(here.workers.run, _encoded, here, view, since))


def _event(name: str, body: dict[str, Any], sequence: int) -> Event:
    return Event(name, orjson.dumps(body), str(sequence))


# --- these block ---------------------------------------------------------------------------------


def _start(call: Call) -> tuple[ViewDescription, int]:
    """The view, and the number after which to begin: where the subscriber was, else now."""
    view = call.here.view(call["view"])
    position = resume_position(call)
    with call.here.store_of(view) as store:
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
        raise ProblemError(400, f"{position[:40]!r} is no number of a change", kind="bad-position")
    return view, int(position)


def _page(here: Surroundings, view: ViewDescription, since: int) -> dict[str, Any]:
    with here.store_of(view) as store:
        try:
            found = store.changes(view.name, since, _PAGE_CHANGES)
        except RequestError as error:
            raise ProblemError(
                410, str(error), "read the view's rows, and go on from their sequence", kind="changes-gone"
            ) from error
    last = found[-1].sequence if found else since
    return {"changes": [_change_to_json(each) for each in found], "sequence": last}


def _newest(here: Surroundings, view: ViewDescription) -> int:
    with here.store_of(view) as store:
        return state_of(store, view.name).sequence


def _encoded(here: Surroundings, view: ViewDescription, since: int) -> tuple[bytes, int] | None:
    """An event's body of the changes after `since`, bounded in bytes, and the number of the last."""
    with here.store_of(view) as store:
        found = store.changes(view.name, since, _PAGE_CHANGES)
    if not found:
        return None
    parts: list[bytes] = []
    size, last = 0, since
    for each in found:
        part = orjson.dumps(_change_to_json(each))
        if parts and size + len(part) > here.settings.event_bytes:
            break
        parts.append(part)
        size += len(part)
        last = each.sequence
    return b'{"changes":[' + b",".join(parts) + b'],"sequence":' + str(last).encode() + b"}", last


def _change_to_json(change: Change) -> dict[str, Any]:
    return {
        "sequence": change.sequence,
        "batch_id": change.batch_id,
        "kind": Kind(change.kind).name.lower(),
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
            "kind": string(enum=[each.name.lower() for each in Kind]),
            "key": mapping(ANYTHING),
            "before": nullable(mapping(ANYTHING)),
            "after": nullable(mapping(ANYTHING)),
        }
    ),
    "ChangePage": object_of({"changes": array(ref("Change")), "sequence": integer("Go on with since=this.")}),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1/views/{view}/changes",
        role=Role.READER,
        tag="views",
        summary="Changes of a view: a page, or with Accept: text/event-stream as they come; also a WebSocket",
        handler=read_changes,
        socket=follow_changes,
        parameters=(
            VIEW,
            Parameter(
                name="since",
                help="Begin after the change of this number; the header Last-Event-ID wins over it.",
                example="41",
            ),
        ),
        answers={
            200: Answer("A page, or events.", "ChangePage", others={MEDIA_TYPE: "Text"}),
            409: Answer("The view's store keeps no changes."),
            410: Answer("Changes after this number are no longer kept, or the view was rebuilt."),
        },
    ),
)
