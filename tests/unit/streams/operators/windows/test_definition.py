"""The definition of results and of lateness, by examples that can be checked by hand."""

import math
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from headrace.streams.operators import (
    Hopping,
    Session,
    Sliding,
    Tumbling,
    WindowOperator,
    agg,
    hopping,
    recompute,
)
from headrace.streams.operators.windows.definition import fates

SECOND = 1_000_000
COUNT = (("n", agg.count()),)
YEAR_1, LAST_SECOND = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def rows(*events, **columns):
    """Rows of (event time, watermark before it), each at the next offset of partition 0."""
    times, watermarks = zip(*events, strict=True)
    return pa.table(
        {
            **columns,
            "_partition": pa.array([0] * len(events), pa.int32()),
            "_offset": pa.array(range(len(events)), pa.int64()),
            "_event_time": pa.array(times, pa.int64()),
            "_watermark": pa.array(watermarks, pa.int64()),
        }
    )


def counts(window, table, *, correct_for=0, watermark=None, **options):
    """{(start, end) of each window, in microseconds: rows that count in it}."""
    operator = WindowOperator(window, (), COUNT, correct_for_us=correct_for, **options)
    results = recompute(operator, table, watermark)
    bounds = [results[name].cast(pa.int64()).to_pylist() for name in ("window_start", "window_end")]
    return dict(zip(zip(*bounds, strict=True), results["n"].to_pylist(), strict=True))


def only_value(aggregate, column):
    """The aggregate of this column in one window, or None in a list if the window has no result."""
    operator = WindowOperator(Tumbling(SECOND), (), (("value", aggregate),))
    return recompute(operator, rows(*((0, None) for _ in column), x=column))["value"].to_pylist()


def fate(window, time, watermark, *, correct_for=0):
    (only,) = fates(WindowOperator(window, (), COUNT, correct_for_us=correct_for), rows((time, watermark)))
    return only


# Which events a window has


def test_an_event_counts_in_a_window_that_had_not_ended_although_its_last_step_had():
    window = hopping("10 seconds", every="7 seconds")
    assert counts(window, rows((4_500_000, 6 * SECOND))) == {(0, 10 * SECOND): 1}
    assert fate(window, 4_500_000, 6 * SECOND) == ("on_time", {})


def test_an_event_that_is_late_for_one_of_its_windows_counts_in_the_other():
    assert counts(Hopping(10, 5), rows((7, None), (7, 9))) == {(0, 10): 2, (5, 15): 2}
    assert counts(Hopping(10, 5), rows((7, None), (7, 10))) == {(0, 10): 1, (5, 15): 2}
    assert counts(Hopping(10, 5), rows((7, None), (7, 15))) == {(0, 10): 1, (5, 15): 1}
    assert counts(Hopping(10, 5), rows((7, 10))) == {(5, 15): 1}


def test_a_step_that_does_not_divide_the_size():
    # [0, 5), [3, 8), [6, 11), [9, 14): 4 is in the first two, 6 in the next two, 8 in [6, 11) alone.
    assert counts(Hopping(5, 3), rows((4, None))) == {(0, 5): 1, (3, 8): 1}
    assert counts(Hopping(5, 3), rows((6, None))) == {(3, 8): 1, (6, 11): 1}
    assert counts(Hopping(5, 3), rows((8, None))) == {(6, 11): 1}


def test_windows_of_one_microsecond():
    assert counts(Tumbling(1), rows((7, 7), (7, None), (8, 8))) == {(7, 8): 2, (8, 9): 1}
    assert counts(Tumbling(1), rows((7, 8))) == {}
    assert counts(Sliding(1), rows((7, 7), (8, 8))) == {(6, 7): 1, (7, 8): 1}
    assert counts(Session(1), rows((7, None), (8, None), (10, None))) == {(7, 9): 2, (10, 11): 1}


def test_windows_before_1970_are_aligned_to_the_epoch_as_well():
    assert counts(Tumbling(10), rows((-1, None), (-10, None), (-11, None))) == {(-10, 0): 2, (-20, -10): 1}
    assert counts(Hopping(10, 7), rows((-5, None))) == {(-14, -4): 1, (-7, 3): 1}
    assert counts(Hopping(10, 7), rows((-5, -4))) == {(-7, 3): 1}
    assert counts(Session(5), rows((-3, None), (2, None))) == {(-3, 7): 2}


def test_a_window_that_is_not_within_the_years_1_to_9999_has_no_result():
    first, last = (round(each.timestamp()) * SECOND for each in (YEAR_1, LAST_SECOND))
    assert counts(Tumbling(SECOND), rows((first, None))) == {(first, first + SECOND): 1}
    assert counts(Hopping(2 * SECOND, SECOND), rows((first, None))) == {(first, first + 2 * SECOND): 1}
    assert counts(Sliding(SECOND), rows((first, None))) == {}
    assert counts(Tumbling(SECOND), rows((last - 1, None))) == {(last - SECOND, last): 1}
    assert counts(Tumbling(SECOND), rows((last, None))) == {}
    assert counts(Session(SECOND), rows((last, None))) == {}
    assert counts(Session(SECOND - 1), rows((last, None))) == {(last, last + SECOND - 1): 1}


def test_a_late_event_counts_for_as_long_as_results_are_corrected():
    late = [(5, 9), (5, 10), (5, 12), (5, 13)]
    assert counts(Tumbling(10), rows(*late)) == {(0, 10): 1}
    assert counts(Tumbling(10), rows(*late), correct_for=3) == {(0, 10): 3}


def test_the_window_of_each_event_reaches_back_but_not_as_far_as_its_size():
    assert counts(Sliding(10), rows((0, None), (9, None), (10, None))) == {
        (-10, 0): 1,
        (-1, 9): 2,
        (0, 10): 2,
    }


def test_events_at_the_same_time_are_in_each_others_sliding_window():
    operator = WindowOperator(Sliding(10), (), COUNT)
    results = recompute(operator, rows((5, None), (5, None)))
    assert results["n"].to_pylist() == [2, 2] and results["_offset"].to_pylist() == [0, 1]


def test_an_event_too_late_for_its_own_sliding_window_counts_in_those_of_later_ones():
    late, before, after = (5, 8), (7, None), (8, None)
    assert counts(Sliding(10), rows(late, before, after)) == {(-3, 7): 1, (-2, 8): 3}
    assert counts(Sliding(10), rows(after, before, late)) == {(-3, 7): 1, (-2, 8): 3}
    assert counts(Sliding(10), rows(late, before, after), correct_for=1) == {(-3, 7): 2, (-2, 8): 3}
    assert counts(Sliding(10), rows(late, before, after), correct_for=3) == {
        (-5, 5): 1,
        (-3, 7): 2,
        (-2, 8): 3,
    }


def test_an_event_is_judged_by_the_session_that_it_would_form_alone():
    assert counts(Session(10), rows((5, 15))) == {(5, 15): 1}
    assert counts(Session(10), rows((5, 16))) == {}
    assert counts(Session(10), rows((5, 16)), correct_for=1) == {(5, 15): 1}


def test_a_late_event_in_the_middle_of_a_session_is_not_counted_and_does_not_join():
    assert counts(Session(10), rows((0, None), (10, 0), (20, 10))) == {(0, 30): 3}
    assert counts(Session(10), rows((0, None), (20, 10), (10, 21))) == {(0, 10): 1, (20, 30): 1}


def test_a_result_is_there_once_the_watermark_has_reached_its_end():
    table = rows((3, None))
    for window, bounds, ended in (
        (Tumbling(10), (0, 10), 10),
        (Sliding(10), (-7, 3), 4),
        (Session(10), (3, 13), 14),
    ):
        assert counts(window, table, watermark=ended - 1) == {}
        assert counts(window, table, watermark=ended) == {bounds: 1}
        assert counts(window, table, watermark=ended - 1, emit="update") == {bounds: 1}


def test_every_nan_is_one_key_and_so_are_both_zeros():
    nans = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    keys = pa.array([nans[0], nans[1], 0.0, -0.0, None], from_pandas=False)
    operator = WindowOperator(Tumbling(10), ("key",), COUNT)
    results = recompute(operator, rows(*((time, None) for time in range(5)), key=keys)).to_pylist()
    assert sorted((repr(each["key"]), each["n"]) for each in results) == [("0.0", 2), ("None", 1), ("nan", 2)]


def test_instants_that_a_clock_shows_twice_are_two_keys():
    """The hour that comes twice when summer time ends: Python takes the two for equal."""
    kind = pa.timestamp("s", "Europe/Berlin")
    keys = pa.array([1_792_886_400, 1_792_890_000], pa.int64()).view(kind)
    operator = WindowOperator(Tumbling(10), ("key",), COUNT)
    assert recompute(operator, rows((0, None), (1, None), key=keys))["n"].to_pylist() == [1, 1]


# What is counted as late


def test_a_row_is_counted_by_the_worst_that_became_of_it():
    assert fate(Hopping(10, 5), 7, None) == ("on_time", {})
    assert fate(Hopping(10, 5), 7, 9) == ("on_time", {})
    assert fate(Hopping(10, 5), 7, 10).outcome == "dropped"
    assert fate(Hopping(10, 5), 7, 10, correct_for=1) == ("corrected", {})
    assert fate(Hopping(10, 5), 7, 11, correct_for=1).outcome == "dropped"
    for window, ended in ((Tumbling(10), 10), (Sliding(10), 8), (Session(10), 18)):
        outcomes = [fate(window, 7, ended + after, correct_for=2).outcome for after in (-1, 0, 1, 2)]
        assert outcomes == ["on_time", "corrected", "corrected", "dropped"]


def test_the_late_topic_tells_which_windows_a_row_missed():
    missed_two = {"window_start_us": 0, "window_end_us": 10, "missed_windows": 2, "every_us": 3}
    assert fate(Hopping(10, 3), 9, 13) == ("dropped", {**missed_two, "counted_from_us": 16})
    missed_one = {"window_start_us": 0, "window_end_us": 10, "missed_windows": 1}
    assert fate(Hopping(10, 3), 9, 12) == ("dropped", {**missed_one, "counted_from_us": 13})
    assert fate(Hopping(10, 3), 9, 19) == ("dropped", {**missed_two, "missed_windows": 4})
    assert fate(Tumbling(10), 9, 10) == ("dropped", missed_one)
    alone = {"window_start_us": 9, "window_end_us": 19, "missed_windows": 1}
    assert fate(Session(10), 9, 20) == ("dropped", alone)
    own = {"window_start_us": -1, "window_end_us": 9, "missed_windows": 1}
    assert fate(Sliding(10), 9, 12) == ("dropped", {**own, "counted_from_us": 12})
    assert fate(Sliding(10), 9, 18) == ("dropped", {**own, "counted_from_us": 18})
    assert fate(Sliding(10), 9, 19) == ("dropped", own)


@pytest.mark.parametrize("correct_for", [0, 2])
@pytest.mark.parametrize("watermark", range(4, 20))
def test_a_dropped_row_counts_in_the_sliding_windows_from_the_time_it_is_told_on(watermark, correct_for):
    window, time = Sliding(8), 3
    found = fate(window, time, watermark, correct_for=correct_for)
    for later in range(time + 1, time + 12):
        both = rows((time, watermark), (later, None))
        n = counts(window, both, correct_for=correct_for)[later - 8, later]
        if found.outcome == "dropped":
            assert (n == 2) == (found.headers.get("counted_from_us", math.inf) <= later < time + 8)
        else:
            assert (n == 2) == (later < time + 8)


# Aggregates


def test_an_integer_sum_fits_64_bits_or_sets_the_result_aside():
    assert only_value(agg.sum("x"), pa.array([2**63 - 1, 1])) == []
    assert only_value(agg.sum("x"), pa.array([2**63 - 1, 1, -1])) == [2**63 - 1]
    assert only_value(agg.sum("x"), pa.array([-(2**63), 0])) == [-(2**63)]
    assert only_value(agg.sum("x"), pa.array([-(2**63), -1])) == []
    assert only_value(agg.sum("x"), pa.array([2**64 - 1], pa.uint64())) == []
    assert only_value(agg.mean("x"), pa.array([2**63 - 1, 2**63 - 1])) == [2.0**63]


def test_a_decimal_sum_has_ten_more_digits_and_38_at_most_or_sets_the_result_aside():
    nines = Decimal("9" * 36 + ".99")
    cent = Decimal("0.01")
    assert only_value(agg.sum("x"), pa.array([nines, cent], pa.decimal128(38, 2))) == []
    assert only_value(agg.sum("x"), pa.array([nines, cent, -cent], pa.decimal128(38, 2))) == [nines]
    assert only_value(agg.sum("x"), pa.array([nines.copy_negate(), -cent], pa.decimal128(38, 2))) == []
    assert only_value(agg.sum("x"), pa.array([Decimal("9.9")] * 2, pa.decimal128(2, 1))) == [Decimal("19.8")]


def test_only_the_result_whose_sum_does_not_fit_is_set_aside_and_as_a_whole():
    table = rows(
        (1, None), (2, None), (11, None), (12, None),
        x=pa.array([2**63 - 1, 1, 5, None]), y=pa.array([1, 1, 2**62, 2**62 - 1]),
    )  # fmt: skip
    named = (("n", agg.count()), ("x", agg.sum("x")), ("y", agg.sum("y")))
    (left,) = recompute(WindowOperator(Tumbling(10), (), named), table).to_pylist()
    assert (left["n"], left["x"], left["y"]) == (2, 5, 2**63 - 1)


def test_the_variance_of_integers_is_exact_where_doubles_are_not():
    large = 2**53
    assert only_value(agg.variance("x"), pa.array([large, large + 1])) == [0.5]
    assert only_value(agg.variance("x"), pa.array([2**63 - 1, 2**63 - 3])) == [2.0]
    assert only_value(agg.variance("x"), pa.array([2**64 - 1, 2**64 - 5], pa.uint64())) == [8.0]
    assert only_value(agg.stddev("x"), pa.array([large, large + 1])) == [math.sqrt(0.5)]


def test_the_variance_of_decimals_is_that_of_the_doubles_nearest_to_them():
    near = [Decimal(2**53), Decimal(2**53 + 1)]  # the second is a double no more, and becomes the first
    assert only_value(agg.variance("x"), pa.array(near, pa.decimal128(20, 0))) == [0.0]


def test_variances_at_the_edges():
    nan, inf = math.nan, math.inf
    assert only_value(agg.variance("x"), pa.array([nan], from_pandas=False)) == [None]
    for others in ([nan, 1.0], [inf, 1.0], [-inf, inf]):
        assert math.isnan(*only_value(agg.variance("x"), pa.array(others, from_pandas=False)))
    assert only_value(agg.variance("x"), pa.array([1e200, -1e200])) == [inf]


def test_the_mean_of_decimals_divides_twice_and_rounds_each_time():
    third = pa.array([Decimal("0.10"), Decimal("0.10"), Decimal("0.10")], pa.decimal128(5, 2))
    assert only_value(agg.mean("x"), third) == [30.0 / 100.0 / 3]
    finest = pa.array([Decimal("0." + "0" * 22 + "7")], pa.decimal128(38, 23))
    assert only_value(agg.mean("x"), finest) == [7.0 / 1e23]  # Python's 10.0**23 is not the nearest


def test_sums_of_doubles_are_rounded_once():
    inf = math.inf
    assert only_value(agg.sum("x"), pa.array([0.1] * 10)) == [1.0]
    assert only_value(agg.sum("x"), pa.array([1e308, 1e308, -1e308])) == [1e308]
    assert only_value(agg.sum("x"), pa.array([-1e308] * 3)) == [-inf]
    assert only_value(agg.sum("x"), pa.array([-inf, 1e308, 1e308])) == [-inf]
    assert math.isnan(*only_value(agg.sum("x"), pa.array([-inf, inf])))
    assert repr(only_value(agg.sum("x"), pa.array([-0.0]))) == "[0.0]"


def test_of_nothing_but_nulls_a_count_is_0_a_list_is_empty_and_all_else_is_null():
    nulls = pa.array([None, None], pa.int64())
    assert only_value(agg.count("x"), nulls) == [0]
    assert only_value(agg.collect("x"), nulls) == [[]]
    for named in (agg.sum, agg.mean, agg.variance, agg.stddev, agg.min, agg.max, agg.first, agg.last):
        assert only_value(named("x"), nulls) == [None]
