"""Views that are rebuilt while the old ones are served.

A rebuild reads history in many batches. Until it has come to where the log ended when
it began, its rows go to a SQLite file of their own, batch by batch and each once, like
to any store; then the served view is replaced by them in one step, under the number of
the last batch, and the query goes on writing to it directly. A crash at any moment
finds either the file or the view at the batch that the checkpoint knows. A rebuild that is to be compared
stays in its file, and is kept up to date there, until somebody has approved what differs.

In a log that is silent, windows close by the clock. So that none of them is missed
where readers have seen it, a build that has read everything waits a while until its
watermark is that of the view it replaces.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from headrace.client import LATEST, Connection, RawFetcher
from headrace.streams import StreamSpec
from headrace.streams.feed import first_position, newest_cut
from headrace.views import (
    LimitedStore,
    Reflected,
    ViewBatch,
    ViewSchema,
    ViewStore,
    open_store,
    rows_as_changes,
)
from headrace.views.rebuilt import Rebuilds, compare_versions

__all__ = [
    "ShadowBuild",
    "StageTarget",
    "beginning",
    "has_come_to",
    "rebuild_target",
    "stale_builds",
]

PATIENCE_S = 60.0


def beginning(spec: StreamSpec, connection: Connection) -> Mapping[int, int]:
    """The offsets at which a query began, or, if the spec does not say, at which one that starts now does."""
    with RawFetcher(connection) as fetcher:
        return first_position(fetcher, spec).next


def rebuild_target(spec: StreamSpec, connection: Connection) -> dict[int, int]:
    """Where a query has caught up: the log's end as it is now, in partitions with something to read.

    A topic of a source whose transactions stay whole is read to the last cut, which is before the log's end.
    """
    start = beginning(spec, connection)
    with RawFetcher(connection) as fetcher:
        ends = fetcher.offsets(spec.topic, LATEST)
        if spec.transactions:
            cut = newest_cut(fetcher, spec.transactions)
            named = cut.ends.get(spec.topic, {}) if cut is not None else {}
            ends = {partition: min(end, named.get(partition, 0)) for partition, end in ends.items()}
    return {partition: end for partition, end in ends.items() if end > start.get(partition, 0)}


def has_come_to(target: Mapping[int, int], offsets: Mapping[int, int]) -> bool:
    """Whether everything before the target has been read; `offsets` are the next ones."""
    return all(offsets.get(partition, 0) >= end for partition, end in target.items())


class StageTarget:
    """Where a second stage has caught up: where its topic ends once the first stage has, which it asks.

    Before, the new records of the topic are not all there, or none of them is.
    """

    def __init__(
        self, first_has_caught_up: Callable[[], bool], ends: Callable[[], Mapping[int, int]]
    ) -> None:
        self._first_has_caught_up = first_has_caught_up
        self._ends = ends
        self._found: Mapping[int, int] | None = None

    def now(self) -> Mapping[int, int] | None:
        """The offsets; None as long as they are not known."""
        if self._found is None and self._first_has_caught_up():
            self._found = self._ends()
        return self._found


class ShadowBuild(LimitedStore):
    """One view on its way to replace the one that is served; takes batches as a `ViewStore` does.

    `targets` say, by topic, what must be in it before it does. For any thread.
    """

    def __init__(
        self,
        store: ViewStore,
        schema: ViewSchema,
        query_id: str,
        *,
        data: Path,
        targets: "Mapping[str, Mapping[int, int] | StageTarget]",
        compare: bool = False,
        say: Callable[[str], None] = lambda _: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._schema = schema
        self._query_id = query_id
        self._targets = targets
        self._rebuilds = Rebuilds(data)
        self._say = say
        if compare:
            self._rebuilds.hold(schema.name, query_id)
        self._now = now
        self._lock = threading.RLock()
        self._caught_up_at: float | None = None
        self._watermark_us = store.reflected(schema.name).watermark_us or 0
        self._path = _path(data, schema.name, query_id)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        hidden = replace(schema, keep_changes=0)
        self._hidden: ViewStore | None = open_store(f"sqlite:///{quote(str(self._path))}")
        self._hidden.prepare(hidden)
        self._hidden.begin(schema.name, query_id)

    @property
    def is_shown(self) -> bool:
        """Whether the view that is served is this one."""
        return self._hidden is None

    def reflected(self) -> Reflected:
        """What has been built so far."""
        return (self._hidden or self._store).reflected(self._schema.name)

    def misfits(self, rows: pa.Table, key: Sequence[str]) -> pa.Array | None:
        """Those of the store that the view is for."""
        return self._store.misfits(rows, key) if isinstance(self._store, LimitedStore) else None

    def apply(self, view: str, batch: ViewBatch) -> bool:
        """Writes a batch, as `ViewStore.apply`; the one that catches up brings the view to light."""
        with self._lock:
            if self._hidden is None:
                return self._store.apply(view, batch)
            written = self._hidden.apply(view, batch)
            self.show_if_caught_up()
            return written

    def show_if_caught_up(self) -> None:
        """Replaces the served view if all of the target is in, and its time, or a while, has come."""
        with self._lock:
            if self.is_shown or not self._has_caught_up():
                return
            if self._caught_up_at is None:
                self._caught_up_at = self._now()
            is_late = self._now() - self._caught_up_at >= PATIENCE_S
            if is_late or (self.reflected().watermark_us or 0) >= self._watermark_us:
                self.show_or_hold()

    def _has_caught_up(self) -> bool:
        offsets = self.reflected().offsets
        for topic, each in self._targets.items():
            target = each.now() if isinstance(each, StageTarget) else each
            if target is None or not has_come_to(target, offsets.get(topic, {})):
                return False
        return True

    def show_or_hold(self) -> None:
        """Replaces the served view by what there is; one that is to be compared, and differs, waits."""
        with self._lock:
            if self._hidden is None or not self._has_something():
                return
            held = self._rebuilds.of_query(self._schema.name, self._query_id)
            if held is None or held.is_approved or (held.comparison is None and not self._differs()):
                self.show()

    def _differs(self) -> bool:
        """Compares what was built with what is served, and keeps what differs for who decides about it."""
        assert self._hidden is not None
        name = self._schema.name
        shown, rebuilt = self._store.snapshot(name), self._hidden.snapshot(name)
        found = compare_versions(
            (self._store.schema(name), shown.rows, shown.reflected.offsets),
            (self._schema, rebuilt.rows, rebuilt.reflected.offsets),
        )
        if not found.is_equal:
            self._rebuilds.note(name, self._query_id, found)
        self._say(found.in_words())
        return not found.is_equal

    def show(self) -> None:
        """Replaces the served view by what there is, in one step."""
        with self._lock:
            if self._hidden is None or not self._has_something():
                return
            name, found = self._schema.name, self._hidden.snapshot(self._schema.name)
            reflected = found.reflected
            self._store.begin(name, self._query_id, schema=self._schema, first_batch=reflected.batch_id)
            self._store.apply(
                name,
                ViewBatch(
                    query_id=self._query_id,
                    batch_id=reflected.batch_id,
                    changes=rows_as_changes(found.rows),
                    offsets=reflected.offsets,
                    watermark_us=reflected.watermark_us,
                    counters=reflected.counters,
                    inputs=reflected.inputs,
                    watermarks=reflected.watermarks,
                ),
            )
            self.close()
            self._hidden = None
            _remove(self._path)
            self._rebuilds.release(name)

    def _has_something(self) -> bool:
        """Whether a batch was built; of a second stage there may be none, if its topic is empty now."""
        if self.reflected().query_id == self._query_id:
            return True
        return all(isinstance(each, StageTarget) and each.now() == {} for each in self._targets.values())

    def close(self) -> None:
        """Gives back the file; harmless when repeated."""
        if self._hidden is not None:
            self._hidden.close()


# --- files --------------------------------------------------------------------------------------


def _path(data: Path, view: str, query_id: str) -> Path:
    return (data / "rebuilding" / f"{view}.{query_id}.db").resolve()


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def stale_builds(data: Path, wanted: Mapping[str, str]) -> None:
    """Removes the files of builds that were given up; `wanted` are the query ids by view."""
    kept = {_path(data, view, query_id).name for view, query_id in wanted.items()}
    for path in (data / "rebuilding").glob("*.db*"):
        if path.name.partition(".db")[0] + ".db" not in kept:
            path.unlink(missing_ok=True)
