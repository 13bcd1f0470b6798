"""Reading a topic over HTTP: pages of records from any place, and its tail as it grows."""

from starlette.responses import Response
from starlette.websockets import WebSocket

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
    nullable,
    object_of,
    ref,
    string,
)
from headrace.console.ask.records import (
    PageLimits,
    RecordPage,
    read_last,
    read_page,
    record_filter,
    records_to_json,
)
from headrace.console.push import EVENT_STREAM, EventStream, resume_position, send_events
from headrace.console.routes.topics.positions import (
    count_before_end,
    format_positions,
    parse_positions,
    partition_bounds,
    start_offsets,
)
from headrace.console.routes.topics.tail import tail_topic
from headrace.console.routes.topics.topic_names import TOPIC
from headrace.console.security import Role

__all__ = ["ROUTES", "SCHEMAS"]

_DEFAULT_LIMIT = 100


async def get_records(call: Call) -> Response:
    """A page, or the tail for a client that asks for events."""
    if call.wants(EVENT_STREAM):
        start = await _start(call)
        return EventStream(call.context.subscriptions, tail_topic(call, start), call.check_still_allowed)
    page, bounds = await call.context.workers.run(_page, call)
    ends = {partition: end for partition, (_, end) in bounds.items() if partition in page.positions}
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
    await send_events(call.context.subscriptions, socket, tail_topic(call, start), call.check_still_allowed)


# --- a page; blocks ------------------------------------------------------------------------------


def _page(call: Call) -> tuple[RecordPage, dict[int, tuple[int, int]]]:
    settings = call.context.settings
    limits = PageLimits(
        records=min(call["limit"] or _DEFAULT_LIMIT, settings.max_rows),
        bytes=settings.max_body_bytes,
        scan_bytes=settings.max_scan_bytes,
    )
    keep = record_filter(call["search"], call["key"])
    with call.context.clients.fetcher() as fetcher:
        bounds = partition_bounds(fetcher, call["topic"], call["partition"])
        last = count_before_end(call["from"])
        if last is not None and call["cursor"] is None and call["offset"] is None and call["time"] is None:
            return read_last(fetcher, call["topic"], bounds, min(last, limits.records), limits, keep), bounds
        begin = start_offsets(call, fetcher, bounds)
        ends = {partition: bounds[partition][1] for partition in begin}
        return read_page(fetcher, call["topic"], begin, ends, limits, keep), bounds


# --- a subscription ------------------------------------------------------------------------------------


async def _start(call: Call) -> dict[int, int]:
    """Where a subscription begins: where it was, else where it says, else at the end.

    A partition that is not in the position came later, and is read from its beginning.
    """
    position = resume_position(call.request.headers, call["since"])
    bounds = await call.context.workers.run(_holding, call)
    if position is not None:
        given = parse_positions(position)
        return {partition: given.get(partition, first) for partition, (first, _) in bounds.items()}
    if call["offset"] is None and call["time"] is None and call["from"] is None and call["cursor"] is None:
        return {partition: end for partition, (_, end) in bounds.items()}
    return await call.context.workers.run(_starting, call)


def _holding(call: Call) -> dict[int, tuple[int, int]]:
    with call.context.clients.fetcher() as fetcher:
        return partition_bounds(fetcher, call["topic"], call["partition"])


def _starting(call: Call) -> dict[int, int]:
    with call.context.clients.fetcher() as fetcher:
        return start_offsets(call, fetcher, partition_bounds(fetcher, call["topic"], call["partition"]))


# --- the table -----------------------------------------------------------------------------------

SINCE = Parameter(
    name="since",
    help="Resume after this event id; the header Last-Event-ID takes precedence.",
    example="0:41,1:17",
)

_PARAMETERS = (
    TOPIC,
    Parameter(
        name="partition", kind="integer", minimum=0, maximum=(1 << 31) - 1, help="Only this partition."
    ),
    Parameter(
        name="offset",
        kind="integer",
        minimum=0,
        maximum=(1 << 63) - 1,
        help="Start at this offset of `partition`.",
    ),
    Parameter(name="time", kind="time", help="Start with the first record at or after this time."),
    Parameter(
        name="from",
        help="Start at earliest, latest, or N records before the end (end-N). "
        "By default pages start at earliest, and subscriptions at latest.",
        example="end-100",
    ),
    Parameter(name="cursor", help="`next` or `position` of an earlier response, to continue there."),
    Parameter(
        name="limit", kind="integer", minimum=1, maximum=100_000, help="Maximum number of records in a page."
    ),
    Parameter(name="search", help="Only records that contain this text in key, value or headers."),
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
            "next": nullable(string("Where the next page starts; null at the end.")),
            "position": string("Where this page ended, for `cursor` or `since`."),
            "gaps": array(
                object_of({"partition": integer(), "start": integer(), "end": integer()}),
                "Records that were removed before they could be read.",
            ),
            "scanned_bytes": integer("How much of the log the search has read."),
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
        handler=get_records,
        socket=follow_records,
        parameters=_PARAMETERS,
        answers={
            200: RouteResponse("A page, or an event stream.", "RecordPage", others={EVENT_STREAM: "Text"}),
            410: RouteResponse("The offset is not in the log: deleted, or beyond the end."),
        },
    ),
)
