"""Late records over HTTP: by view and by window."""

from starlette.responses import Response

from headrace.app.query import READ, SKIPPED
from headrace.console.api import (
    Call,
    Route,
    RouteResponse,
    Schema,
    array,
    integer,
    json_response,
    mapping,
    nullable,
    object_of,
    string,
)
from headrace.console.ask.late import late_watch
from headrace.console.security import Role

__all__ = ["ROUTES", "SCHEMAS"]


async def get_late(call: Call) -> Response:
    return json_response(await late_watch(call.context).look())


_NUMBER: Schema = {"type": "number"}
_COUNTS = mapping(
    integer(), f"{' + '.join(READ)} is what was read; {SKIPPED} are offsets that could not be read."
)

SCHEMAS: dict[str, Schema] = {
    "Late": object_of(
        {
            "topic": nullable(string("The topic with the dropped records.")),
            "views": array(object_of({"view": string(), "counters": _COUNTS})),
            "windows": array(
                object_of(
                    {
                        "view": string(),
                        "window_start": nullable(string(format="date-time")),
                        "window_end": nullable(string(format="date-time")),
                        "dropped": integer("Records."),
                        "corrected": integer("Results that were published again."),
                        "late_by_s": nullable(
                            {**_NUMBER, "description": "By how much the latest dropped record was late."}
                        ),
                    }
                ),
                "The newest 500 windows; at first, of the last 10,000 dropped records and 5,000 changes.",
            ),
        }
    ),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1/late",
        role=Role.READER,
        tag="late records",
        summary="Records on time, corrected or dropped, by view; "
        "and by window, where a record counts in each that it missed",
        handler=get_late,
        answers={200: RouteResponse("Counts by view, and windows.", "Late")},
    ),
)
