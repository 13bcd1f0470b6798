"""The tail of a topic, for all who follow it: read once for those who stand at the same place."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any

import orjson

from headrace.client import LATEST
from headrace.console.positions import format_positions
from headrace.console.reading import Limits, keeping, read_page, records_to_json
from headrace.console.routing import Call
from headrace.console.sharing import Shared
from headrace.console.streaming import HEARTBEAT, Event, wait_pace
from headrace.console.surroundings import Surroundings
from headrace.console.watching import Watch
from headrace.errors import RequestError

__all__ = ["tail"]

_EVENT_RECORDS = 2_000


async def tail(call: Call, positions: dict[int, int]) -> AsyncGenerator[Event, None]:
    """Every record from the positions on, gathered into at most twenty events a second.

    `start` tells the first position, `records` brings records, `gap` tells what was
    removed before it could be read, `reset` that the topic was made anew.
    """
    here, topic, partition = call.here, call["topic"], call["partition"]
    chosen = (call["search"], call["key"])
    watch: Watch[dict[int, int]] = here.watches.of(
        ("topic", topic), lambda: Watch(partial(_look, here, topic), here.settings.poll_ms / 1000)
    )
    shared: Shared[Page] = here.shared.of(("topic", topic, str(partition), *map(str, chosen)))
    loop = asyncio.get_running_loop()
    yield _event("start", positions, {"position": format_positions(positions)})
    async with watch.following():
        while not here.stopping.is_set():
            if isinstance(watch.failure, RequestError):
                raise watch.failure  # the topic is gone
            began, version = loop.time(), watch.version
            ends = _wanted_ends(watch.value or {}, partition)
            for each in ends.keys() - positions.keys():
                positions = {**positions, each: 0}
            reset = {each: 0 for each, end in ends.items() if positions[each] > end}
            if reset:
                positions = {**positions, **reset}
                yield _event(
                    "reset", positions, {"reason": f"{topic} was made anew; reading it from its start"}
                )
            if any(positions[each] < end for each, end in ends.items()):
                at = format_positions(positions)
                page = await shared.get(at, partial(_events, here, topic, positions, ends, chosen))
                for event in page.events:
                    yield event
                positions = page.positions
                await wait_pace(began)
            elif not await watch.wait_change(version, here.settings.heartbeat_ms / 1000):
                yield HEARTBEAT


class Page:
    """A page of a tail, encoded once for all who stand at the same place."""

    __slots__ = ("events", "positions")

    def __init__(self, events: list[Event], positions: dict[int, int]) -> None:
        self.events = events
        self.positions = positions


async def _look(here: Surroundings, topic: str) -> dict[int, int]:
    return await here.workers.run(_ends, here, topic)


def _ends(here: Surroundings, topic: str) -> dict[int, int]:
    partitions = here.layout(topic).leaders.keys()
    with here.fetcher() as fetcher:
        ends = fetcher.offsets(topic, LATEST)
        if ends.keys() != partitions:
            fetcher.layout(topic)  # this fetcher has not heard of new partitions
            ends = fetcher.offsets(topic, LATEST)
        return ends


def _wanted_ends(ends: Mapping[int, int], partition: int | None) -> dict[int, int]:
    return {each: end for each, end in ends.items() if partition in (None, each)}


async def _events(
    here: Surroundings,
    topic: str,
    positions: Mapping[int, int],
    ends: Mapping[int, int],
    chosen: tuple[str | None, str | None],
) -> Page:
    return await here.workers.run(_read_events, here, topic, positions, ends, chosen)


def _read_events(
    here: Surroundings,
    topic: str,
    positions: Mapping[int, int],
    ends: Mapping[int, int],
    chosen: tuple[str | None, str | None],
) -> Page:
    limits = Limits(
        records=_EVENT_RECORDS,
        bytes=here.settings.event_bytes,
        scan_bytes=8 * here.settings.event_bytes,
    )
    with here.fetcher() as fetcher:
        page = read_page(fetcher, topic, positions, ends, limits, keeping(*chosen))
    # The gaps' own ids stand at the old place: whoever is cut between them hears of all again.
    events = [_event("gap", positions, each._asdict()) for each in page.gaps]
    if page.records:
        events.append(_event("records", page.positions, {"records": records_to_json(page.records)}))
    return Page(events, page.positions)


def _event(name: str, positions: Mapping[int, int], body: dict[str, Any]) -> Event:
    return Event(name, orjson.dumps(body), format_positions(positions))
