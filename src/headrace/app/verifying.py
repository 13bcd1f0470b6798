"""The proof: a view recomputed from the log, in batch, and held against what is served."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.app.checkpoints import BUCKETS
from headrace.app.manifest import Manifest
from headrace.app.planning import PlannedStream, PlannedView
from headrace.app.sink import row_changes
from headrace.client import EARLIEST, Connection, RawFetcher
from headrace.errors import RequestError
from headrace.streams.engine.replay import replayed_results, replayed_rows
from headrace.streams.spec import PROCESSING_TIME, StreamSpec
from headrace.streams.starts import Start, parse_start
from headrace.views import Reflected, ViewStore
from headrace.views.batch import net_changes
from headrace.views.json_values import dumps, rows_to_json

__all__ = ["Difference", "Verdict", "compare", "verify_view"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One key on which view and log disagree; None where there is no row."""

    key: Mapping[str, Any]
    served: Mapping[str, Any] | None
    recomputed: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found of one view; `failure` says why it could not be compared, and None if it was."""

    view: str
    rows: int = 0
    differences: tuple[Difference, ...] = ()
    reflected: Reflected = field(default_factory=Reflected)
    failure: str | None = None

    @property
    def is_equal(self) -> bool:
        return self.failure is None and not self.differences


def verify_view(
    spark: SparkSession,
    planned: PlannedStream,
    number: int,
    store: ViewStore,
    connection: Connection,
    *,
    manifest: Manifest | None = None,
) -> Verdict:
    """Recomputes one view from the records it reflects, and compares, row by row and bit by bit.

    `manifest` is that of the stream's query, and says where it began.

    Raises RequestError where that cannot be done: on processing time, when the log no
    longer has all the records, or when nobody knows which they were.
    """
    view = planned.views[number]
    served = store.snapshot(view.view.name)
    end = served.reflected.offsets.get(planned.name, {})
    spec = _as_read(planned, view, served.reflected, manifest)
    _require_whole_log(spec, end, connection)
    recomputed = _recompute(spark, planned, number, connection, end, served.reflected, spec)
    differences = tuple(compare(view, served.rows, recomputed))
    return Verdict(
        view=view.view.name, rows=served.rows.num_rows, differences=differences, reflected=served.reflected
    )


def compare(view: PlannedView, served: pa.Table, recomputed: pa.Table) -> Iterator[Difference]:
    """The keys on which the two tables differ."""
    ours, theirs = (_by_key(view, table) for table in (served, recomputed))
    for key in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(key), theirs.get(key)
        if one != other:
            found = one or other or {}
            yield Difference({name: found[name] for name in view.schema.key}, one, other)


def _by_key(view: PlannedView, table: pa.Table) -> dict[str, dict[str, Any]]:
    """Rows by their key, in a form in which equal bits are equal and nothing else is."""
    rows = rows_to_json(table.select(view.schema.columns.names))
    return {dumps([row[name] for name in view.schema.key]): row for row in rows}


def _recompute(
    spark: SparkSession,
    planned: PlannedStream,
    number: int,
    connection: Connection,
    end: Mapping[int, int],
    reflected: Reflected,
    spec: StreamSpec,
) -> pa.Table:
    view, plan = planned.views[number], planned.plan(BUCKETS, spec)
    if not end:
        return view.schema.columns.empty_table()
    rows = replayed_rows(spark, plan, number, view.steps, connection=connection, end=end)
    if view.plan.operator is not None:
        return replayed_results(rows, plan, number, view.schema.columns, reflected.watermark_us)
    changes = row_changes(view, [rows.toArrow()])
    return net_changes(view.schema, changes).rows


def _as_read(
    planned: PlannedStream, view: PlannedView, reflected: Reflected, manifest: Manifest | None
) -> StreamSpec:
    """The stream as the query read it that made what is served: above all, from where."""
    declared = planned.stream.spec
    if manifest is not None and reflected.query_id in (None, manifest.query_id):
        return manifest.spec(declared, is_proof=True)
    is_second_stage = manifest is not None and manifest.reads
    if parse_start(declared.start) == Start(EARLIEST) and not is_second_stage:
        return declared  # it began at 0; or else the log has no 0 now, and that is seen
    raise RequestError(
        f"where the query began that made {view.view.name} as it is served is not known: a rebuild is under "
        "way, or its manifest is gone. Verify once that is done, or run the application with --rebuild"
    )


def _require_whole_log(spec: StreamSpec, end: Mapping[int, int], connection: Connection) -> None:
    """Retention may have removed what a view still reflects; then there is nothing to prove it by."""
    if spec.event_time == PROCESSING_TIME:
        raise RequestError(
            f"{spec.topic} is on processing time: when its records were processed is not in the log, "
            "so its views cannot be recomputed"
        )
    if not end:
        return
    with RawFetcher(connection) as fetcher:
        firsts = fetcher.offsets(spec.topic, EARLIEST)
    begins = dict(spec.begins)
    held = {each: min(firsts.get(each, last), last) for each, last in end.items()}
    gone = {each: first for each, first in held.items() if first > begins.get(each, 0)}
    if gone:
        places = ", ".join(f"{spec.topic}-{each} before {first}" for each, first in sorted(gone.items()))
        raise RequestError(
            f"the log no longer has {places}: retention removed them, and the view cannot be proved. "
            "Keep the records longer (retention.ms, retention.bytes) to verify"
        )
