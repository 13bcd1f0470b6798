"""Records that a batch sends to topics: dead, late, and derived; no I/O.

Dead letters go to `<application>.dead` and late records to `<application>.late`, each
with key and value as they were, so that they can be sent again, and with headers that
say what happened. The formats are in `docs/guides/applications.md`.

No record is larger than its topic takes, `most_bytes`, or, where several topics are written,
`limits`, which has what those take that take less than is asked of them. What is set aside
is shortened (`headrace.client.deadletters.letters`), and a row that is too large for a derived
topic becomes a dead letter in its stead.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.app.plan.names import dead_topic, late_topic
from headrace.app.plan.plan import PlannedView, stream_of
from headrace.client import LARGEST_RECORD_BYTES
from headrace.client.deadletters import shortened
from headrace.client.write import OutputRecord, fits, row_letter
from headrace.records import LATE_PREFIX, STREAM_PREFIX, SourceRecord, encode_headers, source_header
from headrace.streams.feed import time_header
from headrace.views import dumps, rows_to_json

__all__ = [
    "RowTopic",
    "dead_records",
    "derived_records",
    "dropped_records",
    "failed_records",
    "forgotten_records",
    "late_records",
    "unfit_records",
]

_RECORD = ("_partition", "_offset")
_STEP_LETTERS = 400
_RAISES = "cannot be computed for this record (a division by zero, a cast, an index, an overflow, …)"


def dead_records(
    app: str,
    topic: str,
    query_id: str,
    tables: Iterable[pa.Table],
    *,
    most_bytes: int = LARGEST_RECORD_BYTES,
) -> Iterator[OutputRecord]:
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
        added = encode_headers(STREAM_PREFIX, about)
        parts = shortened(row["key"], row["value"], own, added, prefix=STREAM_PREFIX, most_bytes=most_bytes)
        yield OutputRecord(dead_topic(app), *parts)


def late_records(
    app: str,
    topic: str,
    view: str,
    tables: Iterable[pa.Table],
    *,
    most_bytes: int = LARGEST_RECORD_BYTES,
) -> Iterator[OutputRecord]:
    """Records that a view dropped, as they are, with the windows they missed and by how much."""
    for row in _rows(tables):
        about = {
            "reason": "late",
            "view": view,
            "topic": topic,
            "partition": row["_partition"],
            "offset": row["_offset"],
            "event_time_us": row["_event_time"],
            **_missed(row),
            "late_by_us": row["_watermark"] - row["_event_time"],
        }
        yield _late(app, row["key"], row["value"], about, most_bytes)


def dropped_records(
    app: str,
    topic: str,
    view: str,
    tables: Iterable[pa.Table],
    *,
    most_bytes: int = LARGEST_RECORD_BYTES,
) -> Iterator[OutputRecord]:
    """Records that an operator without windows did not take, as they are, with the reason and by how much."""
    for row in _rows(tables):
        about = {
            "reason": row.get("_reason") or "late",
            "view": view,
            "topic": topic,
            "partition": row["_partition"],
            "offset": row["_offset"],
            "event_time_us": row["_event_time"],
        }
        if row["_watermark"] is not None:
            about["late_by_us"] = row["_watermark"] - row["_event_time"]
        yield _late(app, row["key"], row["value"], about, most_bytes)


def forgotten_records(
    app: str,
    topic: str,
    view: str,
    tables: Iterable[pa.Table],
    *,
    most_bytes: int = LARGEST_RECORD_BYTES,
) -> Iterator[OutputRecord]:
    """What came, after its partition had been idle, for windows whose state was gone.

    Such rows were summed up before that was known, so there is one record per key and
    window, with their number, instead of one per row.
    """
    for table in tables:
        for key, row in zip(_keys(table), table.to_pylist(), strict=True):
            rows = row["_on_time"] + row["_corrected"] + row["_dropped"]
            about = {"reason": "idle", "view": view, "topic": topic, "rows": rows, **_missed(row)}
            yield _late(app, None, dumps(key).encode(), about, most_bytes)


def unfit_records(
    app: str,
    topic: str | None,
    view: str,
    tables: Iterable[pa.Table],
    *,
    most_bytes: int = LARGEST_RECORD_BYTES,
) -> Iterator[OutputRecord]:
    """Word of results that do not fit their type, or their store, and so are not in the view.

    One per key and window.

    A group without windows has neither start nor end.
    """
    for table in tables:
        for key, row in zip(_keys(table), table.to_pylist(), strict=True):
            about = {
                "reason": row.get("_reason", "overflow"),
                **({"error": row["_error"]} if "_error" in row else {}),
                "view": view,
                **({} if topic is None else {"topic": topic}),
            }
            if "_window_start" in row:
                about |= {"window_start_us": row["_window_start"], "window_end_us": row["_window_end"]}
            added, value = encode_headers(STREAM_PREFIX, about), dumps(key).encode()
            parts = shortened(None, value, (), added, prefix=STREAM_PREFIX, most_bytes=most_bytes)
            yield OutputRecord(dead_topic(app), *parts)


def failed_records(
    app: str,
    topic: str,
    view: str,
    query_id: str,
    steps: Sequence[str],
    tables: Iterable[pa.Table],
    *,
    most_bytes: int = LARGEST_RECORD_BYTES,
) -> Iterator[OutputRecord]:
    """Rows for which a step of a view raised, as the JSON of their columns, with the step in words.

    Others may have counted the record, so it cannot be redriven: a rebuild with other steps
    reads it again.
    """
    for row in _rows(tables):
        about = {
            "reason": f"{steps[row['step']][:_STEP_LETTERS]}: {_RAISES}",
            "view": view,
            "topic": topic,
            "partition": row["_partition"],
            "offset": row["_offset"],
            "query": query_id,
            "event_time_us": row["_event_time"],
        }
        about = {name: said for name, said in about.items() if said is not None}  # a table's row has no place
        added, value = encode_headers(STREAM_PREFIX, about), row["row"].encode()
        parts = shortened(None, value, (), added, prefix=STREAM_PREFIX, most_bytes=most_bytes)
        yield OutputRecord(dead_topic(app), *parts)


def _keys(table: pa.Table) -> list[dict[str, Any]]:
    """The keys of what a view tells of windows instead of records."""
    names = [name for name in table.column_names if not name.startswith("_")]
    return rows_to_json(table.select(names)) if names else [{}] * table.num_rows


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


def _late(
    app: str, key: bytes | None, value: bytes | None, about: dict[str, object], most_bytes: int
) -> OutputRecord:
    added = encode_headers(LATE_PREFIX, about)
    parts = shortened(key, value, (), added, prefix=LATE_PREFIX, most_bytes=most_bytes)
    return OutputRecord(late_topic(app), *parts)


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


def derived_records(
    app: str,
    made: RowTopic,
    tables: Iterable[pa.Table],
    *,
    limits: Mapping[str, int] | None = None,
) -> Iterator[OutputRecord]:
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
    limits, topic = limits or {}, made.topic
    times = zip(rows["_event_time"].to_pylist(), rows["_watermark"].to_pylist(), strict=True)
    for fields, source, time in zip(rows_to_json(own), _sources(made, rows), times, strict=True):
        key, value = _key(made, fields), dumps(fields).encode()
        record = OutputRecord(topic, key, value, (source_header(source), time_header(*time)))
        if fits(record, limits.get(topic, LARGEST_RECORD_BYTES)):
            yield record
        else:
            most_bytes = limits.get(dead_topic(app), LARGEST_RECORD_BYTES)
            yield row_letter(dead_topic(app), record, most_bytes=most_bytes)


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
