"""What a view shows at this moment, and how far it is behind the log."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace.app.description import ViewDescription
from headrace.client import LATEST, RawFetcher
from headrace.console.parameters import format_time
from headrace.console.problems import ProblemError
from headrace.console.reading import first_time_ms
from headrace.console.surroundings import Surroundings
from headrace.console.tokens import Positions
from headrace.console.watching import Watch
from headrace.errors import HeadraceError, RequestError
from headrace.views import Reflected, ViewStore

__all__ = ["Lag", "ViewState", "lag_of", "look", "reflected_to_json", "state_of", "watch_view"]

# Stores on files and topics read more than a row to say what they reflect.
_SLOW_S = 0.25


@dataclass(frozen=True, slots=True)
class ViewState:
    """The number of the newest change, and what the rows reflect."""

    sequence: int
    reflected: Reflected


@dataclass(frozen=True, slots=True)
class Lag:
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


def look(here: Surroundings, view: ViewDescription) -> ViewState:
    """The state of a view now; blocks."""
    with here.store_of(view) as store:
        return state_of(store, view.name)


def watch_view(here: Surroundings, view: ViewDescription) -> Watch[ViewState]:
    """The watch that all subscribers of this view and all who wait for it share."""
    url = view.store.url if view.store is not None else ""
    quick = url.startswith(("sqlite:", "postgres"))
    interval_s = here.settings.poll_ms / 1000 if quick else max(_SLOW_S, here.settings.poll_ms / 1000)
    return here.watches.of(
        ("view", view.name, url), lambda: Watch(partial(here.workers.run, look, here, view), interval_s)
    )


def lag_of(here: Surroundings, reflected: Positions, ends: Mapping[str, Mapping[int, int]]) -> Lag:
    """How far a view is behind these ends; blocks for the first record of each partition that lags."""
    records, oldest_ms, now_ms = 0, None, here.clock.now_ms()
    for topic, partitions in reflected.items():
        for partition, offset in partitions.items():
            end = ends.get(topic, {}).get(partition, offset)
            if offset >= end:
                continue
            records += end - offset
            came_ms = _came_ms(here, topic, partition, offset, end)
            if came_ms is not None:
                oldest_ms = came_ms if oldest_ms is None else min(oldest_ms, came_ms)
    return Lag(records, max(0.0, (now_ms - oldest_ms) / 1000) if oldest_ms is not None else 0.0)


def _came_ms(here: Surroundings, topic: str, partition: int, offset: int, end: int) -> int | None:
    """When the record at an offset was written; remembered, since a view that stands still asks again."""
    known = here.record_times.get((topic, partition))
    if known is not None and known[0] == offset:
        return known[1]
    try:
        with here.fetcher() as fetcher:
            found = first_time_ms(fetcher, topic, partition, offset, end)
    except HeadraceError:
        return None  # removed meanwhile, or the log is away: the count of records tells enough
    here.record_times[topic, partition] = (offset, found)
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


def reflected_to_json(reflected: Reflected) -> dict[str, Any]:
    """What a view reflects, as this API shows it."""
    watermark = None if reflected.watermark_us is None else format_time(reflected.watermark_us // 1000)
    return {
        "query_id": reflected.query_id,
        "batch_id": reflected.batch_id,
        "offsets": {
            topic: {str(partition): offset for partition, offset in sorted(each.items())}
            for topic, each in sorted(reflected.offsets.items())
        },
        "watermark": watermark,
        "books": dict(reflected.books),
    }
