"""Records that a batch sends to topics: dead, late, and derived; no I/O.

Dead letters go to `<application>.dead` and late records to `<application>.late`, each
with key and value as they were, so that they can be sent again, and with headers that
say what happened. The formats are in `docs/guides/applications.md`.

No record is larger than its topic takes. What is set aside is shortened
(`headrace.client.deadletters.letters`), and a row that is too large for a derived topic becomes
a dead letter in its stead.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.app.plan.names import dead_topic, late_topic
from headrace.app.plan.plan import PlannedView, stream_of
from headrace.client import LARGEST_RECORD_BYTES
from headrace.client.deadletters import shortened
from headrace.client.write import OutputRecord, fits, row_letter
from headrace.records import LATE_PREFIX, STREAM_PREFIX, Headers, SourceRecord, encode_headers, source_header
from headrace.streams.feed import time_header
from headrace.views import dumps, rows_to_json

__all__ = ["RowTopic", "SideTopics"]

_RECORD = ("_partition", "_offset")
_STEP_LETTERS = 400
_RAISES = "cannot be computed for this record (a division by zero, a cast, an index, an overflow, …)"
Tables = Iterable[pa.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTopic:
    """A derived topic of rows: the topic that they are made from, their columns, and those of their key."""

    topic: str
    source: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()

    @classmethod
    def of(cls, planned: PlannedView) -> "RowTopic":
        """That of a view that has a topic, and no windows."""
        assert planned.view.topic is not None
        source = stream_of(planned.result).spec.topic
        return cls(
            topic=planned.view.topic, source=source, columns=planned.plan.columns, key=tuple(planned.view.key)
        )


@dataclass(frozen=True, slots=True)
class SideTopics:
    """Makes the records. `limits` has what topics take that take less than is asked of them."""

    app: str
    limits: Mapping[str, int] = field(default_factory=dict)

    def dead(self, topic: str, query_id: str, tables: Tables) -> Iterator[OutputRecord]:
        """Records that could not be read, as they are, with the reason and, where there is one, the error."""
        for row in _rows(tables):
            about = {
                "reason": row["reason"],
                **({} if row["error"] is None else {"error": row["error"]}),
                "topic": topic,
                "partition": row["partition"],
                "offset": row["offset"],
                "query": query_id,
                # Beside, not as the letter's own time: retention must count from now.
                "timestamp_ms": round(row["timestamp"].timestamp() * 1000),
            }
            own = tuple((each["key"], each["value"]) for each in row["headers"] or ())
            yield self._letter(row["key"], row["value"], about, own)

    def late(self, topic: str, view: str, tables: Tables) -> Iterator[OutputRecord]:
        """Records that a view dropped, as they are, with the windows they missed and by how much."""
        for row in _rows(tables):
            late_by = {"late_by_us": row["_watermark"] - row["_event_time"]}
            about = {"reason": "late", "view": view, "topic": topic, **_place(row), **_missed(row), **late_by}
            yield self._late(row["key"], row["value"], about)

    def dropped(self, topic: str, view: str, tables: Tables) -> Iterator[OutputRecord]:
        """Records that an operator without windows did not take, with the reason and by how much."""
        for row in _rows(tables):
            about = {"reason": row.get("_reason") or "late", "view": view, "topic": topic, **_place(row)}
            if row["_watermark"] is not None:
                about["late_by_us"] = row["_watermark"] - row["_event_time"]
            yield self._late(row["key"], row["value"], about)

    def forgotten(self, topic: str, view: str, tables: Tables) -> Iterator[OutputRecord]:
        """What came, after its partition had been idle, for windows whose state was gone.

        Such rows were summed up before that was known, so there is one record per key and
        window, with their number, instead of one per row.
        """
        for key, row in _keyed_rows(tables):
            rows = row["_on_time"] + row["_corrected"] + row["_dropped"]
            about = {"reason": "idle", "view": view, "topic": topic, "rows": rows, **_missed(row)}
            yield self._late(None, key, about)

    def unfit(self, topic: str | None, view: str, tables: Tables) -> Iterator[OutputRecord]:
        """Word of results that do not fit their type, or their store, and so are not in the view.

        One per key and window. A group without windows has neither start nor end.
        """
        for key, row in _keyed_rows(tables):
            about = {
                "reason": row.get("_reason", "overflow"),
                **({"error": row["_error"]} if "_error" in row else {}),
                "view": view,
                **({} if topic is None else {"topic": topic}),
            }
            if "_window_start" in row:
                about |= {"window_start_us": row["_window_start"], "window_end_us": row["_window_end"]}
            yield self._letter(None, key, about)

    def failed(
        self, topic: str, view: str, query_id: str, steps: Sequence[str], tables: Tables
    ) -> Iterator[OutputRecord]:
        """Rows for which a step of a view raised, as the JSON of their columns, with the step in words.

        Others may have counted the record, so it cannot be redriven: a rebuild with other steps
        reads it again.
        """
        for row in _rows(tables):
            reason = f"{steps[row['step']][:_STEP_LETTERS]}: {_RAISES}"
            place = {
                name: each for name, each in _place(row).items() if each is not None
            }  # none of tables' rows
            about = {"reason": reason, "view": view, "topic": topic, "query": query_id, **place}
            yield self._letter(None, row["row"].encode(), about)

    def derived(self, made: RowTopic, tables: Tables) -> Iterator[OutputRecord]:
        """One JSON record per row, keyed by the view's key columns.

        Rows of one partition of the source stay in their order; those of several are merged by
        their watermarks, and so by event time as far as the log was. A header tells the record
        each was made from: a rebuild writes the same rows at other offsets, and a consumer that acts on
        them must know them again. Another tells its time, by which a second stage judges it. A
        row that is larger than the topic takes becomes a dead letter.
        """
        found = list(tables)
        if not found:
            return
        rows = _merged(pa.concat_tables(found))
        own = rows.select(list(made.columns))
        times = zip(rows["_event_time"].to_pylist(), rows["_watermark"].to_pylist(), strict=True)
        for fields, source, time in zip(rows_to_json(own), _sources(made, rows), times, strict=True):
            headers = (source_header(source), time_header(*time))
            record = OutputRecord(made.topic, _key(made, fields), dumps(fields).encode(), headers)
            if fits(record, self._most_bytes(made.topic)):
                yield record
            else:
                letters = dead_topic(self.app)
                yield row_letter(letters, record, most_bytes=self._most_bytes(letters))

    def _letter(
        self,
        key: bytes | None,
        value: bytes | None,
        about: Mapping[str, object],
        headers: Headers = (),
    ) -> OutputRecord:
        return self._record(dead_topic(self.app), STREAM_PREFIX, key, value, about, headers)

    def _late(self, key: bytes | None, value: bytes | None, about: Mapping[str, object]) -> OutputRecord:
        return self._record(late_topic(self.app), LATE_PREFIX, key, value, about)

    def _record(
        self,
        topic: str,
        prefix: str,
        key: bytes | None,
        value: bytes | None,
        about: Mapping[str, object],
        headers: Headers = (),
    ) -> OutputRecord:
        added, most_bytes = encode_headers(prefix, about), self._most_bytes(topic)
        parts = shortened(key, value, headers, added, prefix=prefix, most_bytes=most_bytes)
        return OutputRecord(topic, *parts)

    def _most_bytes(self, topic: str) -> int:
        return self.limits.get(topic, LARGEST_RECORD_BYTES)


def _place(row: Mapping[str, Any]) -> dict[str, Any]:
    """Where a row's record is, and when it happened."""
    return {"partition": row["_partition"], "offset": row["_offset"], "event_time_us": row["_event_time"]}


def _keyed_rows(tables: Tables) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """What a view tells of windows and groups instead of records, each behind its key as JSON."""
    for table in tables:
        names = [name for name in table.column_names if not name.startswith("_")]
        keys = rows_to_json(table.select(names)) if names else [{}] * table.num_rows
        yield from zip((dumps(key).encode() for key in keys), table.to_pylist(), strict=True)


def _missed(row: dict[str, Any]) -> dict[str, int]:
    """The windows that a row missed: the earliest, how many, and from when on it counts all the same."""
    about = {
        "window_start_us": row["_window_start"],
        "window_end_us": row["_window_end"],
        "missed_windows": row["_missed_windows"],
    }
    if row["_missed_windows"] > 1:
        about["every_us"] = row["_every"]
    if row["_counted_from"] is not None:
        about["counted_from_us"] = row["_counted_from"]
    return about


def _merged(rows: pa.Table) -> pa.Table:
    """Rows of one partition in its order, those of several by the watermarks that these have reached."""
    rows = rows.sort_by([(name, "ascending") for name in _RECORD])
    partitions, reached = rows["_partition"].to_numpy(), rows["_watermark"].to_numpy().copy()
    for run in np.split(reached, np.flatnonzero(np.diff(partitions)) + 1):
        np.maximum.accumulate(run, out=run)
    return rows.take(pa.array(np.argsort(reached, kind="stable")))


def _sources(made: RowTopic, rows: pa.Table) -> Iterator[SourceRecord]:
    """Where each row came from; rows of one record are numbered."""
    topic, before, number = made.source, None, 0
    for place in zip(rows["_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True):
        number = number + 1 if place == before else 0
        before = place
        yield SourceRecord(topic, *place, number)


def _key(made: RowTopic, fields: dict[str, object]) -> bytes | None:
    """A single text key as it is, so that other programs find the same partition; several as JSON."""
    names = made.key
    if not names:
        return None
    if len(names) == 1 and isinstance(fields[names[0]], str):
        return str(fields[names[0]]).encode()
    return dumps([fields[name] for name in names]).encode()


def _rows(tables: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
    for table in tables:
        yield from table.to_pylist()
