"""What fell aside, over HTTP: late records by window, and the alerts that hold."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import orjson
from starlette.responses import Response

from headrace.app.books import READ, SKIPPED
from headrace.app.status import is_running, read_status
from headrace.console.alert_list import driver_alerts, event_alerts
from headrace.console.late_questions import LateLook
from headrace.console.reading import Found, Limits, bounds, read_last
from headrace.console.routing import Answer, Call, LivePart, Route, json_response
from headrace.console.schemas import Schema, array, integer, mapping, nullable, object_of, ref, string
from headrace.console.security import Role
from headrace.console.surroundings import Surroundings
from headrace.console.watching import Watch
from headrace.errors import HeadraceError, RequestError
from headrace.metrics import Family

__all__ = ["LIVE", "ROUTES", "SCHEMAS", "alert_families", "alerts_now"]

EVENTS_TOPIC = "__headrace_events"
_LAST_EVENTS = 1_000


# --- late records --------------------------------------------------------------------------------


class LateWatch(Watch[dict[str, Any]]):
    """What was late; a look goes on where the one before ended."""

    def __init__(self, here: Surroundings) -> None:
        self._here = here
        self._late = LateLook(here)
        self._one_at_a_time = asyncio.Lock()
        super().__init__(self.look, 1.0)

    async def look(self) -> dict[str, Any]:
        async with self._one_at_a_time:
            return await self._here.workers.run(self._late.look)


async def list_late(call: Call) -> Response:
    watch = call.here.watches.of(("late",), lambda: LateWatch(call.here))
    assert isinstance(watch, LateWatch)
    return json_response(await watch.look())


# --- alerts --------------------------------------------------------------------------------------


async def list_alerts(call: Call) -> Response:
    return json_response({"alerts": await live_alerts(call.here)})


async def live_alerts(here: Surroundings) -> Any:
    return await here.workers.run(alerts_now, here)


def alerts_now(here: Surroundings) -> list[dict[str, Any]]:
    """All that hold, worst and oldest first; those of the log are left out while it is away. Blocks."""
    found: list[dict[str, Any]] = []
    app = here.application()
    if app is not None and here.data is not None:
        found += driver_alerts(app, read_status(here.data), running=is_running(here.data))
    events = here.watches.of(("events",), lambda: EventsWatch(here))
    assert isinstance(events, EventsWatch)
    with suppress(HeadraceError):
        found += event_alerts(events.newest(), here.clock.now_ms() / 1000)
    return sorted(found, key=lambda each: (each["severity"] != "critical", each["since"]))


class EventsWatch(Watch[list[dict[str, Any]]]):
    """The newest events of the broker, oldest first; read again only when there are more."""

    def __init__(self, here: Surroundings) -> None:
        self._here = here
        self._read: tuple[dict[int, tuple[int, int]], list[dict[str, Any]]] = ({}, [])
        super().__init__(self._look, 1.0)

    async def _look(self) -> list[dict[str, Any]]:
        return await self._here.workers.run(self.newest)

    def newest(self) -> list[dict[str, Any]]:
        """Blocks; nothing where there are none, as with a Kafka."""
        limits = Limits(records=_LAST_EVENTS, bytes=1 << 24, scan_bytes=1 << 24)
        try:
            with self._here.fetcher() as fetcher:
                held = bounds(fetcher, EVENTS_TOPIC)
                if held != self._read[0]:
                    page = read_last(fetcher, EVENTS_TOPIC, held, _LAST_EVENTS, limits)
                    self._read = held, list(_parsed(page.records))
        except RequestError:
            return []
        return self._read[1]


def _parsed(records: Iterable[Found]) -> Iterator[dict[str, Any]]:
    for found in records:
        try:
            event = orjson.loads(found.record.value or b"")
        except orjson.JSONDecodeError:
            continue
        if isinstance(event, dict):
            yield event


def alert_families(here: Surroundings) -> Iterator[Family]:
    """The alerts for Prometheus: 1 for each that holds. Blocks."""
    samples = [("", (("kind", each["kind"]), ("subject", each["subject"])), 1.0) for each in alerts_now(here)]
    yield Family("headrace_alert", "gauge", "1 while an alert holds.", samples)


LIVE: dict[str, LivePart] = {"alerts": live_alerts}

_NUMBER: Schema = {"type": "number"}
_COUNTS = mapping(integer(), f"{' + '.join(READ)} is what was read; {SKIPPED} are offsets that could not be.")

SCHEMAS: dict[str, Schema] = {
    "Late": object_of(
        {
            "topic": nullable(string("Where dropped records are kept.")),
            "views": array(object_of({"view": string(), "books": _COUNTS})),
            "windows": array(
                object_of(
                    {
                        "view": string(),
                        "window_start": nullable(string(format="date-time")),
                        "window_end": nullable(string(format="date-time")),
                        "dropped": integer("Records."),
                        "corrected": integer("Results that were published anew."),
                        "late_by_s": nullable({**_NUMBER, "description": "The latest of the dropped."}),
                    }
                ),
                "The newest 500, of the last 10,000 dropped records and 5,000 changes at first.",
            ),
        }
    ),
    "Alert": object_of(
        {
            "id": string(),
            "kind": string("late, dead-letters, lag, query, driver, near-retention or fell-off"),
            "subject": string(),
            "severity": string(enum=["critical", "warning"]),
            "title": string(),
            "detail": string(),
            "next": string("What to do."),
            "value": _NUMBER,
            "threshold": _NUMBER,
            "since": {"type": "number", "description": "Seconds since the epoch."},
        }
    ),
    "Alerts": object_of({"alerts": array(ref("Alert"))}),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1/late",
        role=Role.READER,
        tag="asides",
        summary="What came on time, corrected a result or was dropped, by view and by window",
        handler=list_late,
        answers={200: Answer("The books, and the windows.", "Late")},
    ),
    Route(
        method="GET",
        path="/v1/alerts",
        role=Role.READER,
        tag="asides",
        summary="What needs somebody now",
        handler=list_alerts,
        answers={200: Answer("The alerts that hold.", "Alerts")},
    ),
)
