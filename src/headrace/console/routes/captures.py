"""Captures and followers over HTTP, and for Prometheus: their state, progress and lag."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from starlette.responses import Response

from headrace.capture import state_of
from headrace.console.api import (
    Call,
    LivePart,
    Route,
    RouteResponse,
    Schema,
    array,
    integer,
    json_response,
    mapping,
    nullable,
    object_of,
    ref,
    string,
)
from headrace.console.ask.catalogs import CatalogEntry, declared_captures, declared_followers
from headrace.console.context import ConsoleContext
from headrace.console.security import Role
from headrace.metrics import Family

__all__ = ["LIVE", "ROUTES", "SCHEMAS", "capture_families", "described_capture", "described_follower"]

Described = dict[str, Any]
_RUNNING = ("snapshot", "streaming", "building", "repairing", "following")
_LAG = ("changes", "transactions", "bytes", "seconds", "held_bytes")
_PLACES = ("table", "index", "prefix")
_NUMBERS = ("rows", "total", "share", "rows_per_s", "seconds_left")


async def get_captures(call: Call) -> Response:
    return json_response({"captures": await live_captures(call.context)})


async def get_followers(call: Call) -> Response:
    return json_response({"followers": await live_followers(call.context)})


async def live_captures(context: ConsoleContext) -> Any:
    return await context.workers.run(_captures, context)


async def live_followers(context: ConsoleContext) -> Any:
    return await context.workers.run(_followers, context)


def _captures(context: ConsoleContext) -> list[Described]:
    now_ms = context.clock.now_ms()
    found = sorted(declared_captures(context).items())
    return [described_capture(name, each, now_ms) for name, each in found]


def _followers(context: ConsoleContext) -> list[Described]:
    now_ms = context.clock.now_ms()
    found = sorted(declared_followers(context).items())
    return [described_follower(name, each, now_ms) for name, each in found]


# --- described; pure --------------------------------------------------------------------------------


def described_capture(name: str, entry: CatalogEntry, now_ms: float) -> Described:
    """A capture as the API has it; where its database is, without the options of its URL."""
    said = entry.status or {}
    lag, tables = said.get("lag") or {}, said.get("tables") or {}
    return {
        "name": name,
        "source": str(entry.spec.get("url", "")).partition("?")[0],
        "connector": said.get("connector") or None,
        "state": state_of(entry.status, now_ms, paused=bool(entry.switch.get("paused"))),
        "error": said.get("error"),
        "error_at_ms": said.get("error_at_ms"),
        "said_at_ms": said.get("at_ms"),
        "changes": said.get("changes", 0),
        "last_change_ms": said.get("last_change_ms"),
        "reconnects": said.get("reconnects", 0),
        "lag": {each: lag.get(each) for each in _LAG},
        "snapshot_share": snapshot_share(tables.values()),
        "tables": [_described_table(table, tables[table]) for table in sorted(tables)],
    }


def _described_table(table: str, said: Mapping[str, Any]) -> Described:
    return {"table": table, "phase": said.get("phase", ""), **{each: said.get(each) for each in _NUMBERS}}


def snapshot_share(tables: Iterable[Mapping[str, Any]]) -> float | None:
    """How much of all tables has been read, each counting the same; None if nobody knows."""
    shares = [each.get("share") for each in tables]
    known = [each for each in shares if each is not None]
    return sum(known) / len(known) if known and len(known) == len(shares) else None


def described_follower(name: str, entry: CatalogEntry, now_ms: float) -> Described:
    """A follower as the API has it."""
    said, into = entry.status or {}, entry.spec.get("into") or {}
    state, options = state_of(entry.status, now_ms), into.get("options") or {}
    has_passed = state in _RUNNING  # what its status then still says of an error
    return {
        "name": name,
        "topic": entry.spec.get("topic", ""),
        "kind": into.get("kind", ""),
        "target": str(into.get("url", "")).partition("?")[0],
        "place": next((str(options[each]) for each in _PLACES if each in options), None),
        "state": state,
        "error": None if has_passed else said.get("error"),
        "error_at_ms": None if has_passed else said.get("error_at_ms"),
        "said_at_ms": said.get("at_ms"),
        "positions": said.get("positions") or {},
        "behind": said.get("behind"),
        "seconds_behind": said.get("seconds_behind"),
        **{each: said.get(each, 0) for each in ("upserts", "deletes", "dead", "repairs", "reconnects")},
    }


# --- for Prometheus ---------------------------------------------------------------------------------

Samples = list[tuple[str, tuple[tuple[str, str], ...], float]]


def capture_families(context: ConsoleContext) -> Iterator[Family]:
    """Everything about captures and followers. Blocks."""
    captures, followers = _captures(context), _followers(context)
    for field, text in (
        ("seconds", "At most how long ago the oldest change was committed that a capture has not read."),
        ("bytes", "Bytes of its database's log that a capture has not read."),
        ("transactions", "At most how many transactions a capture has not read."),
        ("changes", "Changes that a capture has not read."),
        ("held_bytes", "Bytes of its log that a database keeps for a capture."),
    ):
        lags = [{"name": each["name"], "value": each["lag"][field]} for each in captures]
        yield Family(f"headrace_capture_lag_{field}", "gauge", text, _samples("capture", lags, "value"))
    yield _running("capture", captures, "Whether a capture follows its database.")
    text = "How much of its tables a capture has read, from 0 to 1."
    yield Family(
        "headrace_capture_snapshot_share", "gauge", text, _samples("capture", captures, "snapshot_share")
    )
    text = "Changes that a capture has written since it started."
    yield Family("headrace_capture_changes_total", "counter", text, _samples("capture", captures, "changes"))
    text = "How often a capture has lost its database or its log, since it started."
    yield Family(
        "headrace_capture_reconnects_total", "counter", text, _samples("capture", captures, "reconnects")
    )
    yield _running("follower", followers, "Whether a follower keeps its target up to date.")
    for name, field, kind, text in (
        ("lag_records", "behind", "gauge", "Offsets that are not in a follower's target."),
        ("lag_seconds", "seconds_behind", "gauge", "Age of the newest record in a target that is behind."),
        ("dead_records_total", "dead", "counter", "Records that a follower gave up since it started."),
        ("reconnects_total", "reconnects", "counter", "How often a follower has lost its target or its log."),
    ):
        yield Family(f"headrace_follower_{name}", kind, text, _samples("follower", followers, field))


def _running(kind: str, found: list[Described], text: str) -> Family:
    states = [{"name": each["name"], "running": each["state"] in _RUNNING} for each in found]
    return Family(f"headrace_{kind}_running", "gauge", text, _samples(kind, states, "running"))


def _samples(label: str, found: list[Described], field: str) -> Samples:
    return [("", ((label, each["name"]),), float(each[field])) for each in found if each[field] is not None]


# --- the API ----------------------------------------------------------------------------------------

LIVE: dict[str, LivePart] = {"captures": live_captures, "followers": live_followers}

_NUMBER: Schema = nullable({"type": "number"})
_TIME = nullable(integer("Milliseconds since the epoch."))
_ERROR = nullable(string("Why it does not go on."))

SCHEMAS: dict[str, Schema] = {
    "CaptureLag": object_of(
        {
            "changes": nullable(integer("Not read yet.")),
            "transactions": nullable(integer("At most so many were not read yet.")),
            "bytes": nullable(integer("Of the database's log, not read yet.")),
            "seconds": nullable(
                {"type": "number", "description": "At most since the oldest unread change was committed."}
            ),
            "held_bytes": nullable(integer("Of its log that the database keeps for the capture.")),
        }
    ),
    "CapturedTable": object_of(
        {
            "table": string(),
            "phase": string("rows: they are read; gone: deleted ones are looked for; done."),
            "rows": nullable(integer("Read by the snapshot so far.")),
            "total": nullable(integer("About how many the table has.")),
            "share": _NUMBER,
            "rows_per_s": _NUMBER,
            "seconds_left": _NUMBER,
        }
    ),
    "Capture": object_of(
        {
            "name": string(),
            "source": string("Where the database is; never a password."),
            "connector": nullable(string("sqlite, postgresql, mysql or mariadb.")),
            "state": string("starting, snapshot, streaming, paused, reconnecting, stopped or not running"),
            "error": _ERROR,
            "error_at_ms": _TIME,
            "said_at_ms": _TIME,
            "changes": integer("Written since it started."),
            "last_change_ms": _TIME,
            "reconnects": integer(),
            "lag": ref("CaptureLag"),
            "snapshot_share": _NUMBER,
            "tables": array(ref("CapturedTable")),
        }
    ),
    "Captures": object_of({"captures": array(ref("Capture"))}),
    "Follower": object_of(
        {
            "name": string(),
            "topic": string("What it follows."),
            "kind": string("Of the target: sqlite, postgres, search, redis, …"),
            "target": string("Where it is; never a password."),
            "place": nullable(string("The table, index or prefix there.")),
            "state": string("starting, building, repairing, following, reconnecting, stopped or not running"),
            "error": _ERROR,
            "error_at_ms": _TIME,
            "said_at_ms": _TIME,
            "positions": mapping(integer(), "Next offsets of the topic by partition."),
            "behind": nullable(integer("Offsets that are not reflected yet.")),
            "seconds_behind": _NUMBER,
            "upserts": integer(),
            "deletes": integer(),
            "dead": integer("Records that could not be applied."),
            "repairs": integer(),
            "reconnects": integer(),
        }
    ),
    "Followers": object_of({"followers": array(ref("Follower"))}),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1/captures",
        role=Role.READER,
        tag="captures",
        summary="Captures of databases: state, snapshots, lag",
        handler=get_captures,
        answers={200: RouteResponse("The captures by name.", "Captures")},
    ),
    Route(
        method="GET",
        path="/v1/followers",
        role=Role.READER,
        tag="captures",
        summary="Followers: which derived systems follow which topics, and how far they are",
        handler=get_followers,
        answers={200: RouteResponse("The followers by name.", "Followers")},
    ),
)
