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

from headrace.console.parameters import format_time
from headrace.console.problems import ProblemError
from headrace.console.routing import Answer, Call, LivePart, Route
from headrace.console.security import Role
from headrace.console.streaming import HEARTBEAT, MEDIA_TYPE, Event, EventStream, send_events
from headrace.console.surroundings import Surroundings
from headrace.console.watching import Watch
from headrace.errors import HeadraceError

__all__ = ["ROUTES"]

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0


async def live(call: Call) -> Response:
    if not call.wants(MEDIA_TYPE):
        raise ProblemError(
            406, "this is a stream of events", f"send Accept: {MEDIA_TYPE}, or use a WebSocket"
        )
    return EventStream(call, statuses(call.here, call.request.app.state.live))


async def follow_live(call: Call, socket: WebSocket) -> None:
    await send_events(call, socket, statuses(call.here, socket.app.state.live))


async def statuses(here: Surroundings, parts: dict[str, LivePart]) -> AsyncGenerator[Event, None]:
    """An event `status` whenever there is a new one, which is every second."""
    watch: Watch[bytes] = here.watches.of(("live",), lambda: Watch(partial(gather, here, parts), INTERVAL_S))
    version = -1
    async with watch.following():
        while not here.stopping.is_set():
            if watch.version > version and watch.value is not None:
                version = watch.version
                yield Event("status", watch.value, str(version))
            elif not await watch.wait_change(version, here.settings.heartbeat_ms / 1000):
                yield HEARTBEAT


async def gather(here: Surroundings, parts: dict[str, LivePart]) -> bytes:
    """All parts at once, as JSON."""
    found = await asyncio.gather(*(_part(here, name, part) for name, part in parts.items()))
    problems = {name: problem for name, _, problem in found if problem is not None}
    status: dict[str, Any] = {"at": format_time(here.clock.now_ms())}
    status |= {name: value for name, value, _ in found}
    return orjson.dumps({**status, "problems": problems}, option=orjson.OPT_NON_STR_KEYS)


async def _part(here: Surroundings, name: str, part: LivePart) -> tuple[str, Any, str | None]:
    try:
        return name, await part(here), None
    except HeadraceError as error:
        return name, None, str(error)
    except Exception:
        logger.exception("the live part %s failed", name)
        return name, None, "a defect of the console; see its messages"


ROUTES = (
    Route(
        method="GET",
        path="/v1/live",
        role=Role.READER,
        tag="live",
        summary="Everything that moves, as an event `status` each second; also a WebSocket",
        handler=live,
        socket=follow_live,
        answers={
            200: Answer("Events.", "Text", media_type=MEDIA_TYPE),
            406: Answer("The request does not accept events."),
        },
    ),
)
