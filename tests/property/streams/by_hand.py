"""The results of windows by the letter of `docs/explanation/windows.md`.

Every window there could be, row by row, without sorting, slicing, grouping, panes or
batches, and only for a few aggregates, so that nothing but the rule itself can be wrong.
"""

from datetime import UTC, datetime, timedelta

from headrace.streams.operators import Session, Sliding

NAMES = ["n", "sum_i", "min_d"]  # of `streams_of_events.AGGREGATES`
_INT64 = range(-(1 << 63), 1 << 63)


def by_hand(operator, rows, watermark=None):
    """The results of rows with a key `text`; with a watermark, those that are published by then."""
    results = []
    for key in {row["text"] for row in rows}:
        own = [row for row in rows if row["text"] == key]
        for extra, start, end, closes, members in _windows(operator, own):
            is_shown = watermark is None or operator.emit == "update" or closes <= watermark
            numbers = [row["i"] for row in members if row["i"] is not None]
            if not is_shown or sum(numbers) not in _INT64:
                continue
            decimals = [row["d"] for row in members if row["d"] is not None]
            results.append(
                {"text": key, **extra, "window_start": instant(start), "window_end": instant(end)}
                | {"n": len(members), "sum_i": sum(numbers) if numbers else None}
                | {"min_d": str(min(decimals)) if decimals else None}
            )
    return sorted((dict(sorted(each.items())) for each in results), key=repr)


def counters_by_hand(operator, rows):
    """How many rows are on time, corrected and dropped."""
    counters = {"on_time": 0, "corrected": 0, "dropped": 0}
    for row in rows:
        ends = _ends(operator.window, row["_event_time"])
        if not all(counts(operator, row, end) for end in ends):
            counters["dropped"] += 1
        elif any(row["_watermark"] is not None and row["_watermark"] >= end for end in ends):
            counters["corrected"] += 1
        else:
            counters["on_time"] += 1
    return counters


def counts(operator, row, end):
    """Whether the row counts in a window that a watermark of `end` ends."""
    return row["_watermark"] is None or row["_watermark"] < end + operator.correct_for_us


def _ends(window, time):
    """The watermarks that end the windows by which a row is judged."""
    if isinstance(window, Session):
        return [time + window.gap_us + 1]
    if isinstance(window, Sliding):
        return [time + 1]
    starts = range(time - window.size_us + 1, time + 1)
    return [start + window.size_us for start in starts if start % window.step_us == 0]


def _windows(operator, rows):
    """The windows of one key: what tells results of rows apart, the bounds, when it closes, its rows."""
    window = operator.window
    if isinstance(window, Session):
        yield from _sessions(operator, rows)
    elif isinstance(window, Sliding):
        for row in rows:
            start, end = row["_event_time"] - window.size_us, row["_event_time"]
            if counts(operator, row, end + 1):
                members = [each for each in rows if start < each["_event_time"] <= end]
                members = [each for each in members if counts(operator, each, end + 1)]
                place = {"_partition": row["_partition"], "_offset": row["_offset"]}
                yield place, start, end, end + 1, members
    else:
        for end in {end for row in rows for end in _ends(window, row["_event_time"])}:
            start = end - window.size_us
            members = [
                row for row in rows if start <= row["_event_time"] < end and counts(operator, row, end)
            ]
            if members:
                yield {}, start, end, end, members


def _sessions(operator, rows):
    gap = operator.window.gap_us
    rows = [row for row in rows if counts(operator, row, row["_event_time"] + gap + 1)]
    times = {row["_event_time"] for row in rows}
    for first in times:
        if any(first - gap <= time < first for time in times):
            continue
        last = first
        while any(last < time <= last + gap for time in times):
            last = min(time for time in times if last < time)
        members = [row for row in rows if first <= row["_event_time"] <= last]
        yield {}, first, last + gap, last + gap + 1, members


def instant(time_us):
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
