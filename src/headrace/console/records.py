"""Reading a topic over HTTP: pages of records from any place, and its tail as it grows."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any

import orjson
from starlette.responses import Response
from starlette.websockets import WebSocket

from headrace.client import LATEST, OffsetsGone, RawFetcher
from headrace.console.ingest import TOPIC
from headrace.console.parameters import Parameter
from headrace.console.positions import format_positions, parse_positions
from headrace.console.problems import ProblemError
from headrace.console.reading import Keep, Limits, TopicPage, bounds, read_last, read_page, records_to_json
from headrace.console.routing import Answer, Call, Route, json_response
from headrace.console.schemas import ANYTHING, Schema, array, integer, nullable, object_of, ref, string
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
from headrace.console.watching import Watch
from headrace.errors import RequestError
from headrace.records import Record

__all__ = ["ROUTES", "SCHEMAS"]

_EVENT_RECORDS = 2_000
_DEFAULT_LIMIT = 100


async def read_records(call: Call) -> Response:
    """A page, or the tail for whoever asks for events."""
    if call.wants(MEDIA_TYPE):
        start = await _start(call)
        return EventStream(call, tail(call, start))
    page, held = await call.here.workers.run(_page, call)
    ends = {partition: end for partition, (_, end) in held.items() if partition in page.positions}
    at_end = all(page.positions[each] >= ends[each] for each in ends)
    position = format_positions(page.positions)
    return json_response(
        {
            "records": records_to_json(page.records),
            "next": None if at_end else position,
            "position": position,
            "gaps": [each._asdict() for each in page.gaps],
            "scanned_bytes": page.scanned,
        }
    )


async def follow_records(call: Call, socket: WebSocket) -> None:
    start = await _start(call)
    await send_events(call, socket, tail(call, start))


# --- a page; blocks ------------------------------------------------------------------------------


def _page(call: Call) -> tuple[TopicPage, dict[int, tuple[int, int]]]:
    settings = call.here.settings
    limits = Limits(
        records=min(call["limit"] or _DEFAULT_LIMIT, settings.max_rows),
        bytes=settings.max_body_bytes,
        scan_bytes=settings.max_scan_bytes,
    )
    keep = keeping(call["search"], call["key"])
    with call.here.fetcher() as fetcher:
        held = _held(fetcher, call["topic"], call["partition"])
        last = _last_count(call["from"])
        if last is not None and call["cursor"] is None and call["offset"] is None and call["time"] is None:
            return read_last(fetcher, call["topic"], held, min(last, limits.records), limits, keep), held
        starts = _starts(call, fetcher, held)
        ends = {partition: held[partition][1] for partition in starts}
        return read_page(fetcher, call["topic"], starts, ends, limits, keep), held


def _held(fetcher: RawFetcher, topic: str, partition: int | None) -> dict[int, tuple[int, int]]:
    held = bounds(fetcher, topic)
    if partition is None:
        return held
    if partition not in held:
        raise ProblemError(404, f"{topic} has no partition {partition}; it has {len(held)}")
    return {partition: held[partition]}


def _starts(call: Call, fetcher: RawFetcher, held: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """The offset to begin with in each partition, as the parameters say."""
    if call["cursor"] is not None:
        given = parse_positions(call["cursor"])
        return {
            partition: _inside(call["topic"], partition, given.get(partition, first), first, end)
            for partition, (first, end) in held.items()
        }
    if call["offset"] is not None:
        if call["partition"] is None:
            raise ProblemError(400, "an offset is one of a partition; give partition too")
        ((partition, (first, end)),) = held.items()
        if not first <= call["offset"] <= end:
            raise _gone(call["topic"], partition, call["offset"], first, end)
        return {partition: call["offset"]}
    if call["time"] is not None:
        found = fetcher.offsets(call["topic"], max(0, call["time"]))
        return {partition: max(first, found[partition]) for partition, (first, _) in held.items()}
    if call["from"] == "latest":
        return {partition: end for partition, (_, end) in held.items()}
    last = _last_count(call["from"])
    if last is not None:
        return {partition: max(first, end - last) for partition, (first, end) in held.items()}
    if call["from"] not in (None, "earliest"):
        raise ProblemError(400, f"from={call['from'][:40]!r}: give earliest, latest or end-100")
    return {partition: first for partition, (first, _) in held.items()}


def _inside(topic: str, partition: int, offset: int, first: int, end: int) -> int:
    """A position that was handed out earlier; one beyond the end is of a topic that was made anew."""
    if offset > end:
        raise _gone(topic, partition, offset, first, end)
    return offset


def _gone(topic: str, partition: int, offset: int, first: int, end: int) -> OffsetsGone:
    return OffsetsGone(
        f"{topic}-{partition} has no offset {offset}: it holds {first} up to {end}",
        asked=offset,
        first=first,
        end=end,
    )


def _last_count(start: str | None) -> int | None:
    count = (start or "").removeprefix("end-")
    known = start is not None and start.startswith("end-") and count.isascii() and count.isdigit()
    return int(count) if known and len(count) <= 9 else None


def keeping(search: str | None, key: str | None) -> Keep:
    """Which records are shown: those with this key, and with this text in any part; case does not matter."""
    wanted = None if search is None else search.casefold()
    wanted_key = None if key is None else key.encode(errors="replace")

    def keep(record: Record) -> bool:
        if wanted_key is not None and record.key != wanted_key:
            return False
        return wanted is None or any(wanted in each for each in _texts(record))

    return keep


def _texts(record: Record) -> list[str]:
    parts = [record.key, record.value, *(part for name, value in record.headers for part in (name, value))]
    return [
        (each if isinstance(each, str) else each.decode(errors="replace")).casefold()
        for each in parts
        if each is not None
    ]


# --- the tail ------------------------------------------------------------------------------------


async def _start(call: Call) -> dict[int, int]:
    """Where a subscription begins: where it was, else where it says, else at the end.

    A partition that is not in the position came later, and is read from its beginning.
    """
    position = resume_position(call)
    held = await call.here.workers.run(_holding, call)
    if position is not None:
        given = parse_positions(position)
        return {partition: given.get(partition, first) for partition, (first, _) in held.items()}
    if call["offset"] is None and call["time"] is None and call["from"] is None and call["cursor"] is None:
        return {partition: end for partition, (_, end) in held.items()}
    return await call.here.workers.run(_starting, call)


def _holding(call: Call) -> dict[int, tuple[int, int]]:
    with call.here.fetcher() as fetcher:
        return _held(fetcher, call["topic"], call["partition"])


def _starting(call: Call) -> dict[int, int]:
    with call.here.fetcher() as fetcher:
        return _starts(call, fetcher, _held(fetcher, call["topic"], call["partition"]))


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


# --- the table -----------------------------------------------------------------------------------

SINCE = Parameter(
    name="since",
    help="Resume after this event id; the header Last-Event-ID wins over it.",
    example="0:41,1:17",
)

_PARAMETERS = (
    TOPIC,
    Parameter(name="partition", kind="integer", minimum=0, maximum=(1 << 31) - 1, help="Only this one."),
    Parameter(
        name="offset",
        kind="integer",
        minimum=0,
        maximum=(1 << 63) - 1,
        help="Begin at this offset of `partition`.",
    ),
    Parameter(name="time", kind="time", help="Begin with the first record at or after this time."),
    Parameter(
        name="from",
        help="Begin at earliest, latest, or so many records before the end (end-100). "
        "Pages begin at earliest, subscriptions at latest, unless told otherwise.",
        example="end-100",
    ),
    Parameter(name="cursor", help="`next` or `position` of an earlier answer; goes on there."),
    Parameter(name="limit", kind="integer", minimum=1, maximum=100_000, help="Most records in a page."),
    Parameter(name="search", help="Only records with this text in key, value or headers."),
    Parameter(name="key", help="Only records with this key."),
    SINCE,
)

SCHEMAS: dict[str, Schema] = {
    "ReadRecord": object_of(
        {
            "partition": integer(),
            "offset": integer(),
            "timestamp": nullable(string(format="date-time")),
            "key": nullable(string()),
            "key_encoding": nullable(string(enum=["text", "base64"])),
            "value": ANYTHING,
            "encoding": nullable(string("How `value` was decoded.", enum=["json", "text", "base64"])),
            "headers": array(
                object_of(
                    {
                        "name": string(),
                        "value": nullable(string()),
                        "encoding": nullable(string(enum=["text", "base64"])),
                    }
                )
            ),
            "size": integer("Bytes of key, value and headers."),
        }
    ),
    "RecordPage": object_of(
        {
            "records": array(ref("ReadRecord")),
            "next": nullable(string("Where the next page begins; null at the end.")),
            "position": string("Where this page ended, for `cursor` or `since`."),
            "gaps": array(
                object_of({"partition": integer(), "start": integer(), "end": integer()}),
                "Records that were removed before they could be read.",
            ),
            "scanned_bytes": integer("How much of the log a search looked at."),
        }
    ),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1/topics/{topic}/records",
        role=Role.READER,
        tag="reading",
        summary="Records of a topic: a page, or with Accept: text/event-stream its tail; also a WebSocket",
        handler=read_records,
        socket=follow_records,
        parameters=_PARAMETERS,
        answers={
            200: Answer("A page, or events.", "RecordPage", others={MEDIA_TYPE: "Text"}),
            410: Answer("The offset is no longer, or not yet, on the log."),
        },
    ),
)
