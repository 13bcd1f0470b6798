"""Why a row is as it is, and which rows a record has touched: `headrace why` and `affects` over HTTP.

Both recompute views from the log with Spark, in a process of their own, one at a time, and so are no mere
reads: they need a writer, and are audited. Records are shown
as they are on the log, with personal fields sealed.
"""

from typing import Any

from starlette.responses import Response

from headrace.console.api import (
    ANYTHING,
    Call,
    Parameter,
    Route,
    RouteBody,
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
from headrace.console.problems import ProblemError
from headrace.console.routes.views.views import VIEW
from headrace.console.security import Role

__all__ = ["ROUTES", "SCHEMAS"]


async def post_why(call: Call) -> Response:
    view = await call.context.workers.run(call.context.application.view, call["view"])
    given = call.json_object()
    if set(given) != set(view.key):
        raise ProblemError(
            400,
            f"the key of view {view.name!r} is {', '.join(view.key)}, but the body has "
            f"{', '.join(sorted(given)) or 'nothing'}",
            "send the row's key columns as a JSON object",
            kind="bad-body",
        )
    pairs = [f"{name}={_text(given[name])}" for name in view.key]
    return json_response(await _ask(call, "why", "--limit", str(call["limit"]), to=[view.name, *pairs]))


async def post_affects(call: Call) -> Response:
    place = [call["topic"], str(call["partition"]), str(call["offset"])]
    return json_response(await _ask(call, "affects", to=place))


async def _ask(call: Call, command: str, *options: str, to: list[str]) -> Any:
    application = call.context.application
    file = await call.context.workers.run(application.file)
    flags = ["--json", "--file", file, "--data", str(application.path)]
    flags += ["--bootstrap", call.context.connection.bootstrap_servers]
    return await call.context.traces.ask(command, *options, *flags, "--", *to)


def _text(value: Any) -> str:
    """A value of a key as filters and the command line take it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ProblemError(400, "the columns of a key are text, numbers, or true or false", kind="bad-body")


SCHEMAS: dict[str, Schema] = {
    "RowKey": mapping(ANYTHING),
    "Why": object_of(
        {
            "view": string(),
            "row": mapping(ANYTHING),
            "count": integer("How many records the row is made of."),
            "records": array(
                object_of(
                    {
                        "topic": string(),
                        "partition": integer(),
                        "offset": integer(),
                        "time": nullable(string("Null if the record is no longer on the log.")),
                        "key": nullable(string()),
                        "value": ANYTHING,
                        "command": ANYTHING,
                        "by": nullable(string("Who sent the command behind an entity's event.")),
                    }
                )
            ),
        }
    ),
    "Affects": object_of(
        {
            "record": string(),
            "rows": array(object_of({"view": string(), "key": mapping(ANYTHING)})),
            "notes": array(string("Views that could not be asked, and why.")),
        }
    ),
}

_ANSWERS = {
    409: RouteResponse("The application's file is not on this machine."),
    422: RouteResponse("There is no answer; `detail` says why."),
    503: RouteResponse("Another question is being answered."),
}

ROUTES = (
    Route(
        method="POST",
        path="/v1/views/{view}/why",
        role=Role.WRITER,
        tag="views",
        summary="Why a row is as it is: the records behind it, with commands and senders",
        handler=post_why,
        parameters=(
            VIEW,
            Parameter(
                name="limit",
                kind="integer",
                default=100,
                minimum=1,
                maximum=1_000,
                help="Maximum number of records.",
            ),
        ),
        body=RouteBody("RowKey", "The columns of the row's key."),
        answers={200: RouteResponse("The records.", "Why"), **_ANSWERS},
    ),
    Route(
        method="POST",
        path="/v1/topics/{topic}/records/{partition}/{offset}/affects",
        role=Role.WRITER,
        tag="topics",
        summary="Which rows of views a record has touched",
        handler=post_affects,
        parameters=(
            Parameter(name="topic", place="path", help="Name of the topic."),
            Parameter(name="partition", place="path", kind="integer", minimum=0, help="Its partition."),
            Parameter(name="offset", place="path", kind="integer", minimum=0, help="Its offset."),
        ),
        answers={200: RouteResponse("The rows.", "Affects"), **_ANSWERS},
    ),
)
