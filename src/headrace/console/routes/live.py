"""Everything that moves, once a second, for the page: so that it polls nothing.

One task gathers for all readers, and only while there are some. Each part comes from the
module that knows it (`table.LIVE`); one that fails is null, and named in `problems`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import orjson
from starlette.responses import Response
from starlette.websockets import WebSocket

from headrace.console.api import Call, LivePart, Route, RouteResponse, format_rfc3339
from headrace.console.context import ConsoleContext
from headrace.console.problems import ProblemError
from headrace.console.push import EVENT_STREAM, HEARTBEAT, EventStream, StreamEvent, Watch, send_events
from headrace.console.security import Role
from headrace.errors import HeadraceError

__all__ = ["ROUTES"]

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0


async def get_live(call: Call) -> Response:
    if not call.wants(EVENT_STREAM):
        raise ProblemError(
            406, "this resource is an event stream", f"send Accept: {EVENT_STREAM}, or use a WebSocket"
        )
    return EventStream(
        call.context.subscriptions,
        statuses(call.context, call.request.app.state.live),
        call.check_still_allowed,
    )


async def follow_live(call: Call, socket: WebSocket) -> None:
    await send_events(
        call.context.subscriptions,
        socket,
        statuses(call.context, socket.app.state.live),
        call.check_still_allowed,
    )


async def statuses(context: ConsoleContext, parts: dict[str, LivePart]) -> AsyncGenerator[StreamEvent, None]:
    """An event `status` whenever there is a new one, which is every second."""
    watch: Watch[bytes] = context.watches.of(
        ("live",), lambda: Watch(partial(gather_status, context, parts), INTERVAL_S)
    )
    version = -1
    async with watch.following():
        while not context.stopping.is_set():
            if watch.version > version and watch.value is not None:
                version = watch.version
                yield StreamEvent("status", watch.value, str(version))
            elif not await watch.wait_change(version, context.settings.heartbeat_ms / 1000):
                yield HEARTBEAT


async def gather_status(context: ConsoleContext, parts: dict[str, LivePart]) -> bytes:
    """All parts at once, as JSON."""
    found = await asyncio.gather(*(_part(context, name, part) for name, part in parts.items()))
    problems = {name: problem for name, _, problem in found if problem is not None}
    status: dict[str, Any] = {"at": format_rfc3339(context.clock.now_ms())}
    status |= {name: value for name, value, _ in found}
    return orjson.dumps({**status, "problems": problems}, option=orjson.OPT_NON_STR_KEYS)


async def _part(context: ConsoleContext, name: str, part: LivePart) -> tuple[str, Any, str | None]:
    try:
        return name, await part(context), None
    except HeadraceError as error:
        return name, None, str(error)
    except Exception:
        logger.exception("the live part %s failed", name)
        return name, None, "internal error; see the console's log"


ROUTES = (
    Route(
        method="GET",
        path="/v1/live",
        role=Role.READER,
        tag="live",
        summary="Everything that moves, as an event `status` each second; also a WebSocket",
        handler=get_live,
        socket=follow_live,
        answers={
            200: RouteResponse("An event stream.", "Text", media_type=EVENT_STREAM),
            406: RouteResponse("The request does not accept an event stream."),
        },
    ),
)
