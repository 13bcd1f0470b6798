"""What a view shows at this moment, and how far it is behind the log."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace.app.status import ViewDescription
from headrace.client import LATEST, RawFetcher
from headrace.console.api import format_rfc3339
from headrace.console.ask.records import first_time_ms
from headrace.console.context import ConsoleContext
from headrace.console.problems import ProblemError
from headrace.console.push import Watch
from headrace.console.write.tokens import WrittenOffsets, encode_token
from headrace.errors import HeadraceError, RequestError, RetriableError
from headrace.views import Reflected, ViewStore

__all__ = [
    "VIEW_STATUS",
    "ViewLag",
    "ViewState",
    "lag_of",
    "look",
    "reflected_for_api",
    "state_of",
    "view_status",
    "view_statuses",
    "watch_view",
]

# Stores on files and topics read more than a row to say what they reflect.
_SLOW_S = 0.25


@dataclass(frozen=True, slots=True)
class ViewState:
    """The number of the newest change, and what the rows reflect."""

    sequence: int
    reflected: Reflected


@dataclass(frozen=True, slots=True)
class ViewLag:
    """Records that are not in the view yet, and for how long the oldest of them has waited."""

    records: int
    seconds: float


def state_of(store: ViewStore, view: str) -> ViewState:
    """Blocks; raises ProblemError with 503 while the view has not been made."""
    try:
        return ViewState(store.last_sequence(view), store.reflected(view))
    except RequestError:
        raise not_built(view) from None


def not_built(view: str) -> ProblemError:
    """The view is declared, and its store does not have it yet."""
    return ProblemError(
        503,
        f"view {view!r} has not been built yet",
        "start its application (`headrace run`), or try again in a moment",
        kind="not-built",
        headers={"Retry-After": "1"},
    )


def look(context: ConsoleContext, view: ViewDescription) -> ViewState:
    """The state of a view now; blocks."""
    with context.application.store_of(view) as store:
        return state_of(store, view.name)


def watch_view(context: ConsoleContext, view: ViewDescription) -> Watch[ViewState]:
    """The watch that all subscribers of this view and all who wait for it share."""
    url = view.store.url if view.store is not None else ""
    quick = url.startswith(("sqlite:", "postgres"))
    interval_s = context.settings.poll_ms / 1000 if quick else max(_SLOW_S, context.settings.poll_ms / 1000)
    return context.watches.of(
        ("view", view.name, url), lambda: Watch(partial(context.workers.run, look, context, view), interval_s)
    )


def lag_of(
    context: ConsoleContext, reflected: WrittenOffsets, ends: Mapping[str, Mapping[int, int]]
) -> ViewLag:
    """How far a view is behind these ends; blocks for the first record of each partition that lags."""
    records, oldest_ms, now_ms = 0, None, context.clock.now_ms()
    for topic, partitions in reflected.items():
        for partition, offset in partitions.items():
            end = ends.get(topic, {}).get(partition, offset)
            if offset >= end:
                continue
            records += end - offset
            came_ms = _came_ms(context, topic, partition, offset, end)
            if came_ms is not None:
                oldest_ms = came_ms if oldest_ms is None else min(oldest_ms, came_ms)
    return ViewLag(records, max(0.0, (now_ms - oldest_ms) / 1000) if oldest_ms is not None else 0.0)


def _came_ms(context: ConsoleContext, topic: str, partition: int, offset: int, end: int) -> int | None:
    """When the record at an offset was written; remembered, since a view that stands still asks again."""
    known = context.record_times.get((topic, partition))
    if known is not None and known[0] == offset:
        return known[1]
    try:
        with context.clients.fetcher() as fetcher:
            found = first_time_ms(fetcher, topic, partition, offset, end)
    except HeadraceError:
        return None  # removed meanwhile, or the log is away: the count of records tells enough
    context.record_times[topic, partition] = (offset, found)
    return found


def ends_of(fetcher: RawFetcher, topics: set[str]) -> dict[str, dict[int, int]]:
    """The next offsets of topics; those that do not exist are left out. Blocks."""
    found = {}
    for topic in sorted(topics):
        try:
            found[topic] = fetcher.offsets(topic, LATEST)
        except RequestError:
            continue
    return found


def reflected_for_api(reflected: Reflected) -> dict[str, Any]:
    """What a view reflects, as this API shows it."""
    watermark = None if reflected.watermark_us is None else format_rfc3339(reflected.watermark_us // 1000)
    return {
        "query_id": reflected.query_id,
        "batch_id": reflected.batch_id,
        "offsets": {
            topic: {str(partition): offset for partition, offset in sorted(each.items())}
            for topic, each in sorted(reflected.offsets.items())
        },
        "watermark": watermark,
        "counters": dict(reflected.counters),
        "inputs": {name: dict(counts) for name, counts in reflected.inputs.items()},
    }


# --- what the API tells of views -----------------------------------------------------------------


VIEW_STATUS = (
    "name",
    "sequence",
    "reflected",
    "watermark",
    "counters",
    "freshness_s",
    "lag_records",
    "token",
    "problem",
)


def view_statuses(context: ConsoleContext) -> list[dict[str, Any]]:
    """The status of every view; one that cannot be read says why."""
    return _with_lag(
        context, {name: _state(context, view) for name, view in context.application.views().items()}
    )


def view_status(context: ConsoleContext, view: ViewDescription) -> dict[str, Any]:
    """The status of one view."""
    return _with_lag(context, {view.name: _state(context, view)})[0]


def _state(context: ConsoleContext, view: ViewDescription) -> ViewState | str:
    """The state of a view, or why it is not known."""
    try:
        return look(context, view)
    except HeadraceError as error:
        return str(error)


def _with_lag(context: ConsoleContext, states: Mapping[str, ViewState | str]) -> list[dict[str, Any]]:
    topics = {
        topic
        for state in states.values()
        if isinstance(state, ViewState)
        for topic in state.reflected.offsets
    }
    try:
        with context.clients.fetcher() as fetcher:
            ends = ends_of(fetcher, topics) if topics else {}
    except RetriableError:
        ends = {}
    return [_status(context, name, state, ends) for name, state in states.items()]


def _status(
    context: ConsoleContext, name: str, state: ViewState | str, ends: dict[str, dict[int, int]]
) -> dict[str, Any]:
    if isinstance(state, str):
        return dict.fromkeys(VIEW_STATUS) | {"name": name, "problem": state}
    reflected = reflected_for_api(state.reflected)
    known = state.reflected.batch_id >= 0 and state.reflected.offsets.keys() <= ends.keys()
    lag = lag_of(context, state.reflected.offsets, ends) if known else None
    return {
        "name": name,
        "sequence": state.sequence,
        "reflected": reflected,
        "watermark": reflected["watermark"],
        "counters": reflected["counters"],
        "freshness_s": None if lag is None else round(lag.seconds, 3),
        "lag_records": None if lag is None else lag.records,
        "token": encode_token(state.reflected.offsets),
        "problem": None,
    }
