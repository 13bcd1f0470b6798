"""Records that a batch sends to topics: dead, late, and derived; no I/O.

Dead letters go to `<application>.dead` and late records to `<application>.late`, each
with key and value as they were, so that they can be sent again, and with headers that
say what happened. The formats are in `docs/streams.md`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from headrace.app.plans import PlannedView, stream_of
from headrace.direct.positions import Source, source_header
from headrace.views import OutputRecord
from headrace.views.json_values import dumps, rows_to_json

__all__ = ["dead_records", "dead_topic", "derived_records", "forgotten_records", "late_records", "late_topic"]

_RECORD = ("_partition", "_offset")


def dead_topic(app: str) -> str:
    """Where an application's unreadable records go."""
    return f"{app}.dead"


def late_topic(app: str) -> str:
    """Where an application's dropped records go."""
    return f"{app}.late"


def dead_records(app: str, topic: str, query_id: str, tables: Iterable[pa.Table]) -> Iterator[OutputRecord]:
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
        headers = (*own, *_headers("headrace.dead", about))
        yield OutputRecord(dead_topic(app), row["key"], row["value"], headers)


def late_records(app: str, topic: str, view: str, tables: Iterable[pa.Table]) -> Iterator[OutputRecord]:
    """Records that a view dropped, as they are, with the window they missed and by how much."""
    for row in _rows(tables):
        about = {
            "reason": "late",
            "view": view,
            "topic": topic,
            "partition": row["_partition"],
            "offset": row["_offset"],
            "event_time_us": row["_event_time"],
            "window_start_us": row["window_start"],
            "window_end_us": row["window_end"],
            "late_by_us": row["_watermark"] - row["_event_time"],
        }
        yield OutputRecord(late_topic(app), row["key"], row["value"], _headers("headrace.late", about))


def forgotten_records(app: str, topic: str, view: str, tables: Iterable[pa.Table]) -> Iterator[OutputRecord]:
    """What came, after its partition had been idle, for windows whose state was gone.

    Such rows were summed up before that was known, so there is one record per key and
    window, with their number, instead of one per row.
    """
    for table in tables:
        starts, ends = (table[name].cast(pa.int64()).to_pylist() for name in ("window_start", "window_end"))
        for row, start, end in zip(rows_to_json(table), starts, ends, strict=True):
            rows = row.pop("on_time") + row.pop("corrected")
            about = {"reason": "idle", "view": view, "topic": topic, "rows": rows}
            about |= {"window_start_us": start, "window_end_us": end}
            yield OutputRecord(late_topic(app), None, dumps(row).encode(), _headers("headrace.late", about))


def derived_records(planned: PlannedView, tables: Iterable[pa.Table]) -> Iterator[OutputRecord]:
    """One JSON record per row, in the order of the log, keyed by the view's key columns.

    A header tells the record it was made from: a rebuild writes the same rows at other
    offsets, and whoever acts on them must know them again.
    """
    assert planned.view.topic is not None
    found = list(tables)
    if not found:
        return
    rows = pa.concat_tables(found).sort_by([(name, "ascending") for name in _RECORD])
    own = rows.select(list(planned.plan.columns))
    for fields, source in zip(rows_to_json(own), _sources(planned, rows), strict=True):
        key, value = _key(planned, fields), dumps(fields).encode()
        yield OutputRecord(planned.view.topic, key, value, (source_header(source),))


def _sources(planned: PlannedView, rows: pa.Table) -> Iterator[Source]:
    """Where each row came from; rows of one record are numbered."""
    topic, before, number = stream_of(planned.result).spec.topic, None, 0
    for place in zip(rows["_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True):
        number = number + 1 if place == before else 0
        before = place
        yield Source(topic, *place, number)


def _key(planned: PlannedView, fields: dict[str, object]) -> bytes | None:
    """A single text key as it is, so that other programs find the same partition; several as JSON."""
    names = planned.view.key
    if not names:
        return None
    if len(names) == 1 and isinstance(fields[names[0]], str):
        return str(fields[names[0]]).encode()
    return dumps([fields[name] for name in names]).encode()


def _rows(tables: Iterable[pa.Table]) -> Iterator[dict[str, Any]]:
    for table in tables:
        yield from table.to_pylist()


def _headers(prefix: str, about: dict[str, object]) -> tuple[tuple[str, bytes], ...]:
    return tuple((f"{prefix}.{name}", str(value).encode()) for name, value in about.items())
