"""The tail of a topic, for all who follow it: read once for those who stand at the same place."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any

import orjson

from headrace.client import LATEST
from headrace.console.api import Call
from headrace.console.ask.records import PageLimits, read_page, record_filter, records_to_json
from headrace.console.context import ConsoleContext
from headrace.console.push import HEARTBEAT, ReadCache, StreamEvent, Watch, wait_pace
from headrace.console.routes.topics.positions import format_positions
from headrace.errors import RequestError

__all__ = ["tail_topic"]

_EVENT_RECORDS = 2_000


async def tail_topic(call: Call, positions: dict[int, int]) -> AsyncGenerator[StreamEvent, None]:
    """Every record from the positions on, gathered into at most twenty events a second.

    `start` tells the first position, `records` brings records, `gap` tells what was
    removed before it could be read, `reset` that the topic was created again.
    """
    context, topic, partition = call.context, call["topic"], call["partition"]
    chosen = (call["search"], call["key"])
    watch: Watch[dict[int, int]] = context.watches.of(
        ("topic", topic), lambda: Watch(partial(_look, context, topic), context.settings.poll_ms / 1000)
    )
    shared: ReadCache[Page] = context.read_caches.of(("topic", topic, str(partition), *map(str, chosen)))
    loop = asyncio.get_running_loop()
    yield _event("start", positions, {"position": format_positions(positions)})
    async with watch.following():
        while not context.stopping.is_set():
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
                    "reset", positions, {"reason": f"{topic} was created again; reading it from its start"}
                )
            if any(positions[each] < end for each, end in ends.items()):
                at = format_positions(positions)
                page = await shared.get(at, partial(_events, context, topic, positions, ends, chosen))
                events, positions = list(page.events), page.positions
                del page  # while the next one is awaited none is held
                while events:
                    yield events.pop(0)
                await wait_pace(began)
            elif not await watch.wait_change(version, context.settings.heartbeat_ms / 1000):
                yield HEARTBEAT


class Page:
    """A page of a tail, encoded once for all who stand at the same place."""

    __slots__ = ("events", "positions")

    def __init__(self, events: list[StreamEvent], positions: dict[int, int]) -> None:
        self.events = events
        self.positions = positions

    @property
    def size(self) -> int:
        """Bytes that it takes, nearly."""
        return sum(each.size for each in self.events)


async def _look(context: ConsoleContext, topic: str) -> dict[int, int]:
    return await context.workers.run(_ends, context, topic)


def _ends(context: ConsoleContext, topic: str) -> dict[int, int]:
    partitions = context.clients.layout(topic).leaders.keys()
    with context.clients.fetcher() as fetcher:
        ends = fetcher.offsets(topic, LATEST)
        if ends.keys() != partitions:
            fetcher.layout(topic)  # this fetcher has not heard of new partitions
            ends = fetcher.offsets(topic, LATEST)
        return ends


def _wanted_ends(ends: Mapping[int, int], partition: int | None) -> dict[int, int]:
    return {each: end for each, end in ends.items() if partition in (None, each)}


async def _events(
    context: ConsoleContext,
    topic: str,
    positions: Mapping[int, int],
    ends: Mapping[int, int],
    chosen: tuple[str | None, str | None],
) -> Page:
    async with context.page_reads:
        return await context.workers.run(_read_events, context, topic, positions, ends, chosen)


def _read_events(
    context: ConsoleContext,
    topic: str,
    positions: Mapping[int, int],
    ends: Mapping[int, int],
    chosen: tuple[str | None, str | None],
) -> Page:
    limits = PageLimits(
        records=_EVENT_RECORDS,
        bytes=context.settings.event_bytes,
        scan_bytes=8 * context.settings.event_bytes,
    )
    with context.clients.fetcher() as fetcher:
        page = read_page(fetcher, topic, positions, ends, limits, record_filter(*chosen))
    # The gaps' own ids stand at the old place: a client that is cut off between them gets all again.
    events = [_event("gap", positions, each._asdict()) for each in page.gaps]
    if page.records:
        events.append(_event("records", page.positions, {"records": records_to_json(page.records)}))
    return Page(events, page.positions)


def _event(name: str, positions: Mapping[int, int], body: dict[str, Any]) -> StreamEvent:
    return StreamEvent(name, orjson.dumps(body), format_positions(positions))
