"""Watches the log and the views from outside, as any reader can."""

import contextlib
import statistics
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from headrace.client import EARLIEST, LATEST, RawFetcher
from headrace.demo.checks import Ends
from headrace.demo.display import ViewSpeed
from headrace.demo.headlines import correction, headlines
from headrace.demo.search_index import SearchIndex
from headrace.demo.traffic import TOPICS
from headrace.errors import RequestError
from headrace.records import decode_columns
from headrace.views import ChangeKind, ViewStore, open_store

__all__ = ["SEARCH_FILE", "CapturedTopic", "Freshness", "ViewMonitor", "earlier_headlines", "log_ends"]

Offsets = Mapping[int, int]

_CORRECTED_VIEW = "revenue_per_minute"
SEARCH_FILE = "search.db"
_SEARCH = "ghent gold"
_MAX_CORRECTIONS_SHOWN = 2


def log_ends(fetcher: RawFetcher) -> Ends:
    """The ends of the traffic's topics; one that does not exist yet is left out."""
    ends: dict[str, dict[int, int]] = {}
    for topic in TOPICS:
        with contextlib.suppress(RequestError):
            ends[topic] = fetcher.offsets(topic, LATEST)
    return ends


class CapturedTopic:
    """Where the records of a topic end that is written in transactions, and how many there are.

    The ends of transactions have offsets, too, which no view ever reflects; so it is read.
    """

    def __init__(self, fetcher: RawFetcher, topic: str) -> None:
        self._fetcher = fetcher
        self._topic = topic
        self._read_to = fetcher.offsets(topic, EARLIEST)
        self.ends: dict[int, int] = dict.fromkeys(self._read_to, 0)
        self.count = 0

    def look(self) -> Offsets:
        """Reads what is new; returns the offsets behind the last records."""
        for partition, end in self._fetcher.offsets(self._topic, LATEST).items():
            start = self._read_to[partition]
            for run in self._fetcher.fetch(self._topic, partition, start, end):
                columns = decode_columns(run, start_offset=start, end_offset=end, columns=("offset",))
                self._note(partition, columns["offset"].to_pylist())
            self._read_to[partition] = end
        return self.ends

    def _note(self, partition: int, offsets: Sequence[int]) -> None:
        """Each record once, also when the log goes down before the next run."""
        if offsets:
            self.count += len(offsets)
            self.ends[partition] = self._read_to[partition] = offsets[-1] + 1


def earlier_headlines(folder: Path) -> list[str]:
    """What the views of an earlier demo show; nothing if there was none."""
    if not (folder / "views.db").exists():
        return []
    with contextlib.closing(_open_views(folder)) as store, contextlib.suppress(RequestError):
        return list(headlines(store, datetime.now(UTC)))
    return []


def _open_views(folder: Path) -> ViewStore:
    return open_store(f"sqlite:///{folder / 'views.db'}")


class Freshness:
    """How long records take from the log into a view."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, Offsets]] = deque()
        self._seconds: list[float] = []

    def note(self, now_s: float, ends: Offsets, reflected: Offsets) -> None:
        """One observation: the next offsets of the log and of the view, by partition."""
        self._waiting.append((now_s, ends))
        while self._waiting and _covers(reflected, self._waiting[0][1]):
            self._seconds.append(now_s - self._waiting.popleft()[0])

    @property
    def median_s(self) -> float | None:
        return statistics.median(self._seconds) if self._seconds else None

    @property
    def worst_s(self) -> float | None:
        return max(self._seconds, default=None)


def _covers(reflected: Offsets, ends: Offsets) -> bool:
    return all(reflected.get(partition, 0) >= end for partition, end in ends.items())


class ViewMonitor:
    """The views of a running shop, from its first result on.

    `starts` are the ends of the topics before the traffic, and `runs_for_s` is how long the
    queries have been running: both for the events per second.
    """

    def __init__(self, folder: Path, fetcher: RawFetcher, starts: Ends, runs_for_s: float) -> None:
        self._fetcher = fetcher
        self._topics: dict[str, CapturedTopic] = {}
        self._index = SearchIndex(folder / SEARCH_FILE)
        self._starts = starts
        self._store = _open_views(folder)
        self._began = time.monotonic() - runs_for_s
        self._freshness: dict[str, Freshness] = {}
        self._read: dict[str, tuple[int, float]] = {}
        self._seen = self._store.last_sequence(_CORRECTED_VIEW)

    def look(self) -> Ends:
        """Records how far the views are behind the log; returns the ends of the log."""
        reflected = {view: self._store.reflected(view).offsets for view in self._store.views()}
        captured = {topic for each in reflected.values() for topic in each} - set(TOPICS)
        of_tables = {topic: dict(self._captured(topic).look()) for topic in captured}
        ends = {**log_ends(self._fetcher), **of_tables}
        now = time.monotonic() - self._began
        for view, topics in reflected.items():
            for topic, offsets in topics.items():
                count = sum(offsets.values()) - sum(self._starts.get(topic, {}).values())
                self._freshness.setdefault(view, Freshness()).note(now, ends.get(topic, {}), offsets)
                if count > self._read.get(view, (0, 0.0))[0]:
                    self._read[view] = (count, now)
        return ends

    def record_counts(self) -> dict[str, int]:
        """How many records each topic has."""
        return {
            topic: sum(ends.values()) if topic in TOPICS else self._captured(topic).count
            for topic, ends in self.look().items()
        }

    def behind(self) -> list[str]:
        """Views that do not reflect the whole log yet, each with how much is missing."""
        ends = self.look()
        missing = {view: self._missing(view, ends) for view in self._store.views()}
        return [f"{view} ({count:,} events)" for view, count in missing.items() if count]

    def speed(self, view: str) -> ViewSpeed:
        """The speed of a view so far."""
        count, at_s = self._read.get(view, (0, 0.0))
        fresh = self._freshness.get(view, Freshness())
        return ViewSpeed(
            events_per_s=count / at_s if at_s else 0.0,
            median_s=fresh.median_s,
            worst_s=fresh.worst_s,
        )

    def headlines(self) -> list[str]:
        """What the views show now."""
        found = self._index.headline(_SEARCH)
        return [*headlines(self._store, datetime.now(UTC)), *filter(None, [found])]

    def tiers(self) -> dict[str, int]:
        """How many customers each tier has, as the view says."""
        rows = self._store.read("customers_per_tier").to_pylist()
        return {row["tier"]: row["customers"] for row in rows}

    def corrections(self) -> Iterator[str]:
        """The latest corrections since the last call."""
        since, self._seen = self._seen, self._store.last_sequence(_CORRECTED_VIEW)
        with contextlib.suppress(RequestError):  # there were more than are kept: continue with the next
            changes = self._store.changes(_CORRECTED_VIEW, since=since, limit=10_000)
            found = [
                each for each in changes if each.kind == ChangeKind.CORRECTION and each.before is not None
            ]
            yield from map(correction, found[-_MAX_CORRECTIONS_SHOWN:])

    def close(self) -> None:
        self._store.close()

    def _captured(self, topic: str) -> CapturedTopic:
        if topic not in self._topics:
            self._topics[topic] = CapturedTopic(self._fetcher, topic)
        return self._topics[topic]

    def _missing(self, view: str, ends: Ends) -> int:
        """Events that the view does not reflect yet; at least one before its first batch."""
        reflected = self._store.reflected(view).offsets
        if not reflected:
            return 1
        return sum(
            max(0, end - reflected[topic].get(partition, 0))
            for topic in reflected
            for partition, end in ends[topic].items()
        )
