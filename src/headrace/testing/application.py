"""Runs an application on records in memory, on a clock that only the test moves.

    with run_app(app, start="2026-01-05T09:00:00Z") as run:
        run.send("orders", {"region": "north", "amount": 5.0, "placed_at": "2026-01-05T09:00:01Z"})
        run.stop_input()
        assert run.rows("revenue_per_minute")[0]["revenue"] == 5.0

Everything between log and view is what runs in production: stamping, lateness, windows,
books, the sink, a store. Only the log is a list and time stands still. Without
PySpark between the stages nothing imports Spark and a case takes milliseconds; with
`where`, `select` or `with_columns` pass a `spark`, whose projection is then used.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import pyarrow as pa

from headrace.app.application import App
from headrace.app.loading import import_app
from headrace.app.plans import PlannedStream
from headrace.app.records import dead_topic, late_topic
from headrace.errors import ConfigError
from headrace.streams.operators import microseconds
from headrace.testing.application_plan import plan_for_test
from headrace.testing.application_stream import RecordList, StreamRun
from headrace.views import Change, OutputRecord, ViewStore, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AppRun", "Aside", "run_app"]

_START = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """A record that was set aside: as it was, why, and what else is known, as text."""

    reason: str
    key: bytes | None
    value: bytes | None
    about: Mapping[str, str]


def run_app(
    app: App | str | Path, *, start: str | datetime = _START, spark: "SparkSession | None" = None
) -> "AppRun":
    """An application, or the file of one, ready for records; its clock stands at `start`.

    Raises ConfigError if the application makes no sense, or needs a Spark that is not given.
    """
    found = app if isinstance(app, App) else import_app(Path(app))
    return AppRun(found, plan_for_test(found, spark), _moment_us(start), spark)


class AppRun:
    """An application that runs. What was sent is taken in as one micro-batch at the next
    `batch`, `advance`, `stop_input` or look at a result."""

    def __init__(
        self, app: App, streams: Sequence[PlannedStream], now_us: int, spark: "SparkSession | None"
    ) -> None:
        self._app = app
        self._now_us = now_us
        self._records = RecordList()
        self._store = open_store(f"memory://test-{uuid4().hex}")
        self._streams = {
            each.name: StreamRun(app.name, each, self._store, self._records, now_us, spark)
            for each in streams
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Forgets everything."""
        for view in self._store.views():
            self._store.drop(view)
        self._store.close()

    # --- input --------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """What the clock says."""
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self._now_us)

    def send(
        self,
        topic: str,
        *values: Mapping[str, Any] | bytes | None,
        partition: int = 0,
        key: str | bytes | None = None,
        at: str | datetime | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
    ) -> None:
        """Appends records to a partition: objects, which become JSON, or bytes as they are.

        Their timestamp is the clock's time, or `at`.
        """
        stream = self._stream(topic)
        moment_us = self._now_us if at is None else _moment_us(at)
        for value in values:
            stream.append(value, partition=partition, key=key, moment_us=moment_us, headers=tuple(headers))

    def batch(self) -> None:
        """Takes in what was sent, as one micro-batch; nothing happens if nothing is due.

        What this writes to topics that the application reads itself is taken in next.
        """
        for stream in self._streams.values():
            stream.step(self._now_us)
        if self._pass_on():
            self.batch()

    def advance(self, duration: str | timedelta) -> None:
        """Lets time pass without input: partitions become idle, and event time goes on when all are."""
        self.batch()
        self._now_us += microseconds(duration)
        self.batch()

    def stop_input(self) -> None:
        """No more input: time passes until every window has closed."""
        self.batch()
        self._now_us += max(stream.patience_us for stream in self._streams.values())
        self.batch()

    # --- results ------------------------------------------------------------------------------

    def rows(self, view: str) -> list[dict[str, Any]]:
        """The view as it is now, ordered by its key; times are datetimes in UTC."""
        return self.table(view).to_pylist()  # type: ignore[no-any-return]

    def table(self, view: str) -> pa.Table:
        """The view as it is now, as Arrow."""
        return self._up_to_date().read(view)

    def changes(self, view: str) -> list[Change]:
        """Everything that was published, in order; a correction has `before` and `after`."""
        return self._up_to_date().changes(view, limit=10_000)

    def books(self, view: str) -> dict[str, int]:
        """How many rows were on time, corrected, dropped, …; what was never counted is left out."""
        books = self._up_to_date().reflected(view).books
        return {name: count for name, count in books.items() if count}

    def watermark(self, topic: str) -> datetime | None:
        """The watermark by which the stream's windows close; None before its first record."""
        self.batch()
        found = self._stream(topic).watermark_us
        return None if found is None else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=found)

    def topic(self, name: str) -> list[OutputRecord]:
        """The records written to a topic."""
        self.batch()
        return self._records.of(name)

    @property
    def late(self) -> list[Aside]:
        """Records that a view dropped, with the window they missed."""
        return list(_asides(self.topic(late_topic(self._app.name)), "headrace.late."))

    @property
    def dead(self) -> list[Aside]:
        """Records that could not be read, or came from the far future."""
        return list(_asides(self.topic(dead_topic(self._app.name)), "headrace.dead."))

    def _up_to_date(self) -> ViewStore:
        self.batch()
        return self._store

    def _pass_on(self) -> bool:
        """Gives what was written to the streams that read it; False if there is nothing."""
        written = [record for record in self._records.take_new() if record.topic in self._streams]
        for record in written:
            self._streams[record.topic].append_written(record, self._now_us)
        return bool(written)

    def _stream(self, topic: str) -> StreamRun:
        if topic not in self._streams:
            known = ", ".join(self._streams) or "none"
            raise ConfigError(f"no view of {self._app.name!r} reads a stream {topic!r}; there is: {known}")
        return self._streams[topic]


def _asides(records: Iterable[OutputRecord], prefix: str) -> Iterator[Aside]:
    for record in records:
        named = {name: value or b"" for name, value in record.headers if name.startswith(prefix)}
        about = {name.removeprefix(prefix): value.decode() for name, value in named.items()}
        yield Aside(reason=about.pop("reason"), key=record.key, value=record.value, about=about)


def _moment_us(moment: str | datetime) -> int:
    found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return (found - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
