"""The clients with which a console reads and administers the log: made when first needed, and reused."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, LifoQueue

from confluent_kafka.admin import AdminClient

from headrace.client import Connection, GroupOffsets, RawFetcher, TopicLayout, admin
from headrace.client.topics import Log
from headrace.clock import Clock

__all__ = ["LogClients"]

_FETCH_BYTES = 1 << 20
_LAYOUT_MS, _MOST_LAYOUTS = 2_000, 10_000
_TIMEOUT_S = 5.0


class LogClients:
    """Any thread; what they answer blocks."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._lock = threading.Lock()
        self._fetchers: LifoQueue[RawFetcher] = LifoQueue()
        self._groups: dict[str, LifoQueue[GroupOffsets]] = {}
        self._layouts: dict[str, tuple[int, TopicLayout]] = {}
        self._admin: AdminClient | None = None

    @contextmanager
    def fetcher(self) -> Iterator[RawFetcher]:
        """A fetcher for the length of the block, this caller's alone."""
        try:
            fetcher = self._fetchers.get_nowait()
        except Empty:
            fetcher = RawFetcher(self._connection, max_bytes=_FETCH_BYTES)
        try:
            yield fetcher
        except BaseException:
            fetcher.close()  # half an answer may be on its way
            raise
        finally:
            self._fetchers.put(fetcher)

    @contextmanager
    def group_offsets(self, group: str) -> Iterator[GroupOffsets]:
        """The offsets of a group for the length of the block, through connections of this caller alone."""
        with self._lock:
            idle = self._groups.setdefault(group, LifoQueue())
        try:
            offsets = idle.get_nowait()
        except Empty:
            offsets = GroupOffsets(self._connection, group)
        try:
            yield offsets
        except BaseException:
            offsets.close()  # half an answer may be on its way
            raise
        finally:
            idle.put(offsets)

    def layout(self, topic: str) -> TopicLayout:
        """A topic's id and partitions, at most two seconds old; raises RequestError if there is none."""
        now = self._clock.monotonic_ms()
        known = self._layouts.get(topic)
        if known is not None and now - known[0] < _LAYOUT_MS:
            return known[1]
        with self.fetcher() as fetcher:
            found = fetcher.layout(topic)
        if len(self._layouts) >= _MOST_LAYOUTS:
            self._layouts.clear()
        self._layouts[topic] = (now, found)
        return found

    def admin(self) -> AdminClient:
        """A client for topics, groups and configurations."""
        with self._lock:
            if self._admin is None:
                self._admin = admin(self._connection, log_level=0, error_cb=lambda _: None)
            return self._admin

    def log(self) -> Log:
        """The log's topics, offsets and configurations, with a short timeout."""
        return Log(self.admin(), self._connection.bootstrap_servers, timeout_s=_TIMEOUT_S)

    def close(self) -> None:
        while not self._fetchers.empty():
            self._fetchers.get_nowait().close()
        for idle in self._groups.values():
            while not idle.empty():
                idle.get_nowait().close()
