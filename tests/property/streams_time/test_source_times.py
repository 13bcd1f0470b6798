"""Rows of derived topics: stamped the same however the log is cut, and by what they bring along."""

import itertools
import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples

from headrace.records import SOURCE_HEADER, Record, encode_batch, stamp
from headrace.records.columns import lay_out
from headrace.streams.event_time import NO_WATERMARK, PartitionTime, SourceTime
from headrace.streams.feed.source_times import SourceTimes, time_header
from headrace.streams.feed.stamping import Stamper
from headrace.streams.spec import StreamSpec

NOW_MS = 1_767_225_600_000
TOLD, BY_SOURCE = 2_000, None  # the lateness in what records bring; None: another event time

seconds = st.integers(-50, 50)
rows = st.tuples(st.just("row"), st.sampled_from(["s:0", "s:1", "r:0"]), seconds, seconds)
others = st.tuples(st.just("other"), seconds)
logs = st.lists(st.one_of(rows, rows, others), max_size=25)


def record(number, at, kind, *rest):
    headers = ()
    if kind == "row":
        source, _, watermark = rest
        headers = ((SOURCE_HEADER, f"{source}:{number}".encode()), time_header(rest[1] * 1000, watermark))
        rest = rest[1:]
    return Record(number, NOW_MS + at, None, json.dumps({"at": rest[0]}).encode(), headers)


def stamped(log, cuts, source_lateness_us):
    """Event times and watermarks of all rows, and the time behind them; the log is read in pieces."""
    spec = StreamSpec(
        topic="t",
        schema="at long",
        event_time="at",
        lateness_us=3_000,
        source_lateness_us=source_lateness_us,
    )
    time, found = PartitionTime(), []
    bounds = [0, *sorted(cut % (len(log) + 1) for cut in cuts), len(log)]
    for start, end in itertools.pairwise(bounds):
        if start == end:
            continue
        batch = encode_batch([record(at - start, at, *log[at]) for at in range(start, end)])
        stamp(batch, 0, start, 0)
        stamper = Stamper(spec, 0, PartitionTime.from_json(json.loads(json.dumps(time.to_json()))))
        piece = stamper.stamp(lay_out(batch))
        assert piece.dead is None
        found += zip(piece.rows["_event_time"].to_pylist(), piece.rows["_watermark"].to_pylist(), strict=True)
        time = stamper.time
    return found, time


@pytest.mark.parametrize("source_lateness_us", [TOLD, BY_SOURCE])
@settings(deadline=None, max_examples=examples(24))
@given(log=logs, cuts=st.lists(st.integers(0, 30), max_size=4))
def test_rows_are_the_same_however_the_log_is_cut_and_read_again(source_lateness_us, log, cuts):
    assert stamped(log, cuts, source_lateness_us) == stamped(log, [], source_lateness_us)


@settings(deadline=None, max_examples=examples(24))
@given(log=logs)
def test_where_the_first_stage_tells_the_time_a_row_has_its_watermark_and_the_longer_lateness(log):
    found, time = stamped(log, [], TOLD)
    seen = None
    for (event_time, watermark), (kind, *rest) in zip(found, log, strict=True):
        if kind == "row":
            assert (event_time, watermark) == (rest[1] * 1000, rest[2] - 1_000)
        else:
            assert watermark == (NO_WATERMARK if seen is None else seen - 3_000)
            seen = max(event_time, event_time if seen is None else seen)
    assert time == PartitionTime(seen)


@settings(deadline=None, max_examples=examples(24))
@given(log=logs)
def test_with_another_event_time_a_row_is_judged_by_those_of_its_source(log):
    found, time = stamped(log, [], BY_SOURCE)
    seen, written = {}, {}
    for number, ((event_time, watermark), (kind, *rest)) in enumerate(zip(found, log, strict=True)):
        source = rest[0] if kind == "row" else None
        assert watermark == (seen[source] - 3_000 if source in seen else NO_WATERMARK)
        seen[source] = max(event_time, seen.get(source, event_time))
        written[source] = (NOW_MS + number) * 1000
    sources = [(each.source, each.seen, each.written_us) for each in time.sources]
    assert sources == [(each, seen[each], written[each]) for each in sorted(seen.keys() - {None})]
    assert time.seen == seen.get(None)


def test_results_do_not_wait_for_a_source_that_was_silent_while_others_were_not():
    time = PartitionTime(None, None, (SourceTime("s:0", 100, 1_000), SourceTime("s:1", 900, 9_000)))
    assert time.progress(10, idle_after_us=8_000) == 90
    assert time.progress(10, idle_after_us=7_999) == 890


headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@given(event_time=st.integers(-(10**17), 10**17), watermark=st.integers(-(10**17), 10**17) | st.none())
def test_what_the_header_of_a_row_says_is_read_back(event_time, watermark):
    wanted = NO_WATERMARK if watermark is None else watermark
    record = [("a", b"b"), (SOURCE_HEADER, b"orders:3:17:1"), time_header(event_time, wanted)]
    found = SourceTimes.of(pa.array([[], [{"key": key, "value": value} for key, value in record]], headers))
    assert found is not None and found.is_derived.tolist() == [False, True]
    assert (found.event_times[1], found.watermarks[1], found.sources[1]) == (event_time, wanted, "orders:3")


@pytest.mark.parametrize("value", [None, b"", b":", b"1", b"1:2:3", b"a:b", b"\xff:1", b"1:" + b"9" * 30])
def test_a_header_that_is_no_time_is_none(value):
    record = [(SOURCE_HEADER, b"orders:3:17"), ("headrace.source.time", value)]
    assert SourceTimes.of(pa.array([[{"key": key, "value": each} for key, each in record]], headers)) is None
