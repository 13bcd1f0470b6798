"""Reading a topic over HTTP: pages of records from any place, and its tail as it grows."""

from starlette.responses import Response
from starlette.websockets import WebSocket

from headrace.console.ingest import TOPIC
from headrace.console.parameters import Parameter
from headrace.console.positions import format_positions, parse_positions
from headrace.console.reading import Limits, TopicPage, keeping, read_last, read_page, records_to_json
from headrace.console.routing import Answer, Call, Route, json_response
from headrace.console.schemas import ANYTHING, Schema, array, integer, nullable, object_of, ref, string
from headrace.console.security import Role
from headrace.console.starts import held, last_count, starts
from headrace.console.streaming import MEDIA_TYPE, EventStream, resume_position, send_events
from headrace.console.tailing import tail

__all__ = ["ROUTES", "SCHEMAS"]

_DEFAULT_LIMIT = 100


async def read_records(call: Call) -> Response:
    """A page, or the tail for whoever asks for events."""
    if call.wants(MEDIA_TYPE):
        start = await _start(call)
        return EventStream(call, tail(call, start))
    page, bounds = await call.here.workers.run(_page, call)
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
        bounds = held(fetcher, call["topic"], call["partition"])
        last = last_count(call["from"])
        if last is not None and call["cursor"] is None and call["offset"] is None and call["time"] is None:
            return read_last(fetcher, call["topic"], bounds, min(last, limits.records), limits, keep), bounds
        begin = starts(call, fetcher, bounds)
        ends = {partition: bounds[partition][1] for partition in begin}
        return read_page(fetcher, call["topic"], begin, ends, limits, keep), bounds


# --- a subscription ------------------------------------------------------------------------------------


async def _start(call: Call) -> dict[int, int]:
    """Where a subscription begins: where it was, else where it says, else at the end.

    A partition that is not in the position came later, and is read from its beginning.
    """
    position = resume_position(call)
    bounds = await call.here.workers.run(_holding, call)
    if position is not None:
        given = parse_positions(position)
        return {partition: given.get(partition, first) for partition, (first, _) in bounds.items()}
    if call["offset"] is None and call["time"] is None and call["from"] is None and call["cursor"] is None:
        return {partition: end for partition, (_, end) in bounds.items()}
    return await call.here.workers.run(_starting, call)


def _holding(call: Call) -> dict[int, tuple[int, int]]:
    with call.here.fetcher() as fetcher:
        return held(fetcher, call["topic"], call["partition"])


def _starting(call: Call) -> dict[int, int]:
    with call.here.fetcher() as fetcher:
        return starts(call, fetcher, held(fetcher, call["topic"], call["partition"]))


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
