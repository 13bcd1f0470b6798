"""Watermarks: rows by a naive loop whatever the cuts; operators never go back nor ahead of anyone awake."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.streams.event_time import (
    NO_WATERMARK,
    Mark,
    PartitionTime,
    operator_watermark,
    row_watermarks,
)

times = st.integers(-(10**6), 10**6)
entries = st.lists(st.tuples(st.sampled_from(["row", "row", "row", "declared"]), times), max_size=30)


def naive(log, lateness):
    """The watermark before each row, by the definition, one entry after the other."""
    seen, declared, found = None, None, []
    for kind, time in log:
        if kind == "row":
            by_rows = NO_WATERMARK if seen is None else seen - lateness
            found.append(max(by_rows, NO_WATERMARK if declared is None else declared))
            seen = time if seen is None else max(seen, time)
        else:
            declared = time if declared is None else max(declared, time)
    return found, PartitionTime(seen, declared)


def run(part, start, lateness):
    rows = [time for kind, time in part if kind == "row"]
    declared, before = [], 0
    for kind, time in part:
        if kind == "row":
            before += 1
        else:
            declared.append((before, time))
    watermarks, after = row_watermarks(np.array(rows, np.int64), start, lateness, declared)
    return watermarks.tolist(), after


@given(entries, st.integers(0, 1000), st.lists(st.integers(0, 30)))
def test_row_watermarks_are_those_of_a_naive_loop_wherever_runs_are_cut(log, lateness, cuts):
    time, found = PartitionTime(), []
    edges = [0, *sorted(min(cut, len(log)) for cut in cuts), len(log)]
    for start, end in itertools.pairwise(edges):
        watermarks, time = run(log[start:end], time, lateness)
        found += watermarks
    assert (found, time) == naive(log, lateness)


@st.composite
def histories(draw):
    """Micro-batches of a few partitions: what each saw, who is idle, how long all were silent."""
    partitions = draw(st.integers(1, 4))
    batches = draw(
        st.lists(
            st.tuples(
                st.dictionaries(st.integers(0, partitions - 1), entries, max_size=partitions),
                st.sets(st.integers(0, partitions - 1)),
                st.integers(0, 10**6),
            ),
            min_size=1,
            max_size=8,
        )
    )
    return partitions, batches


@given(histories(), st.integers(0, 1000))
def test_an_operators_watermark_is_never_ahead_of_a_partition_that_is_awake(history, lateness):
    partitions, batches = history
    times = dict.fromkeys(range(partitions), PartitionTime())
    for batch, quiet, silence in batches:
        idle = frozenset(quiet - batch.keys())
        start, marks = dict(times), []
        for partition, part in batch.items():
            _, times[partition] = run(part, times[partition], lateness)
        for partition in batch or {0: ()}:
            marks.append(
                Mark(
                    partition=partition,
                    next=0,
                    time=times[partition],
                    times=start,
                    lateness_us=lateness,
                    idle=idle,
                    silence_us=silence,
                )
            )
        found = operator_watermark([Mark.from_json(mark.to_json()) for mark in marks])
        awake = [time for each, time in times.items() if each not in idle and time.is_known]
        if awake:
            assert found == min(time.watermark(lateness) for time in awake)
        elif any(time.is_known for time in times.values()):
            assert found >= max(time.watermark(lateness) for time in times.values())
        else:
            assert found is None
        # Each partition's own never goes back, so neither does the least of them while none wakes.
        for each in times:
            assert times[each].watermark(lateness) >= start[each].watermark(lateness)


@given(st.lists(entries, min_size=1, max_size=6), st.integers(0, 1000))
def test_without_idleness_an_operators_watermark_never_goes_back(batches, lateness):
    times, last = {0: PartitionTime(), 1: PartitionTime()}, NO_WATERMARK
    for number, part in enumerate(batches):
        start, partition = dict(times), number % 2
        _, times[partition] = run(part, times[partition], lateness)
        mark = Mark(partition=partition, next=0, time=times[partition], times=start, lateness_us=lateness)
        found = operator_watermark([mark])
        if all(time.is_known for time in start.values()):
            assert found >= last
        last = NO_WATERMARK if found is None else found
