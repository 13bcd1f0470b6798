"""Aggregates: values at the edges, types, and what is refused."""

import math
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from tests.unit.own_aggregates import Product
from tests.unit.streams.operators.rows import closed, table_of

from headrace.errors import RequestError
from headrace.streams.operators import WindowOperator, agg, recompute, tumbling


def result(aggregate, values, kind=None, *, times=None, per_batch=2):
    """The aggregate of these values in one window, which come in small batches."""
    operator = WindowOperator(tumbling("1 minute"), (), (("result", aggregate),))
    column = values if isinstance(values, pa.Array) else pa.array(values, kind, from_pandas=False)
    rows = table_of(times or list(range(len(column))), x=column)
    (only,) = closed(operator, *(rows.slice(at, per_batch) for at in range(0, len(column), per_batch)))
    (defined,) = recompute(operator, rows)["result"].to_pylist()
    found = only["after"]["result"]
    assert repr(found) == repr(defined)
    return found


def test_the_sum_of_doubles_is_the_one_nearest_to_the_exact_sum():
    assert result(agg.sum("x"), [0.1] * 10) == 1.0
    assert result(agg.sum("x"), [1e16, 1.0, -1e16]) == 1.0
    assert result(agg.sum("x"), [1e308, 1e308, -1e308]) == 1e308
    assert result(agg.sum("x"), [1e300, 1e-300, -1e300]) == 1e-300
    assert result(agg.sum("x"), [5e-324] * 3) == 1.5e-323
    assert result(agg.sum("x"), [1e308] * 3) == math.inf
    assert math.copysign(1, result(agg.sum("x"), [-0.0, -0.0])) == 1


def test_sums_know_nan_and_the_infinities():
    inf = math.inf
    assert result(agg.sum("x"), [1.0, inf, 1e300]) == inf
    assert result(agg.sum("x"), [1.0, -inf]) == -inf
    assert math.isnan(result(agg.sum("x"), [inf, 1.0, 2.0, -inf]))
    assert math.isnan(result(agg.mean("x"), [math.nan, 1.0]))
    assert math.isnan(result(agg.variance("x"), [1.0, inf, 2.0]))


def test_nulls_are_left_out_and_nothing_but_nulls_is_null():
    for aggregate in (agg.sum("x"), agg.mean("x"), agg.min("x"), agg.max("x"), agg.variance("x")):
        assert result(aggregate, [None, None], pa.float64()) is None
    assert result(agg.count("x"), [None, 1.0, None]) == 1
    assert result(agg.sum("x"), [None, 2, None], pa.int64()) == 2
    assert result(agg.variance("x"), [None, 2.0]) is None


LARGEST = 2**63 - 1


def test_a_sum_may_leave_its_type_on_the_way_and_a_mean_always_fits():
    assert result(agg.sum("x"), [LARGEST, 1, -1], pa.int64()) == LARGEST
    assert result(agg.mean("x"), [LARGEST, LARGEST], pa.int64()) == 2.0**63


@pytest.mark.parametrize("scale", range(39))
def test_a_mean_of_decimals_is_divided_by_the_double_nearest_to_its_power_of_ten(scale):
    value = Decimal(12345678901234567).scaleb(-scale)
    expected = float(12345678901234567) / float(10**scale) / 1
    assert result(agg.mean("x"), [value], pa.decimal128(38, scale)) == expected


@pytest.mark.parametrize(
    ("values", "kind", "error"),
    [
        ([LARGEST, 1], pa.int64(), "total is 9223372036854775808, which does not fit int64"),
        ([-LARGEST, -2], pa.int64(), "total is -9223372036854775809, which does not fit int64"),
        ([2**64 - 1, 1], pa.uint64(), "total is 18446744073709551616, which does not fit int64"),
        (
            [Decimal("9" * 36 + ".99")] * 2,
            pa.decimal128(38, 2),
            f"total is 1{'9' * 36}.98, which does not fit decimal128(38, 2)",
        ),
        (
            [Decimal("9" * 38), Decimal(1)],
            pa.decimal128(38, 0),
            f"total is 1{'0' * 38}, which does not fit decimal128(38, 0)",
        ),
        (
            [Decimal("-0." + "9" * 38), Decimal("-0." + "0" * 37 + "1")],
            pa.decimal128(38, 38),
            f"total is -1.{'0' * 38}, which does not fit decimal128(38, 38)",
        ),
    ],
)
def test_a_result_with_a_sum_that_does_not_fit_is_set_aside_and_the_others_go_on(values, kind, error):
    operator = WindowOperator(
        tumbling("1 minute"), ("k",), (("n", agg.count()), ("total", agg.sum("x"))), keep_closed_us=1 << 60
    )
    state = operator.new_state()
    rows = table_of([0, 1, 2], k=["a", "a", "b"], x=pa.array([*values, values[1]], kind))
    step = state.advance([operator.partial(rows.slice(at, 1)) for at in range(3)], 1 << 50)
    assert [each["k"] for each in step.changes.to_pylist()] == ["b"]
    (unfit,) = step.unfit.to_pylist()
    assert unfit == {"k": "a", "_window_start": 0, "_window_end": 60_000_000, "_error": error}


def test_a_result_that_comes_to_fit_appears_and_one_that_ceases_to_is_retracted():
    operator = WindowOperator(
        tumbling("1 minute"), (), (("n", agg.count()), ("total", agg.sum("x"))), emit="update"
    )
    state = operator.new_state()
    steps = [
        state.advance([operator.partial(table_of([at], x=pa.array([value])))], None)
        for at, value in enumerate([LARGEST, 1, 1, -2])
    ]
    told = [[] if each.changes is None else each.changes.to_pylist() for each in steps]
    found = [[(change["kind"], change["before"], change["after"]) for change in changes] for changes in told]
    first, last = {"n": 1, "total": LARGEST}, {"n": 4, "total": LARGEST}
    assert found == [[(1, None, first)], [(3, first, None)], [], [(1, None, last)]]
    assert [each.unfit is not None for each in steps] == [False, True, True, False]


def test_sums_of_unsigned_narrow_and_decimal_columns():
    assert result(agg.sum("x"), [2**62, 2**62 - 1], pa.uint64()) == 2**63 - 1
    assert result(agg.sum("x"), [127, 127, -128], pa.int8()) == 126
    assert result(agg.sum("x"), [Decimal("0.10")] * 3, pa.decimal128(5, 2)) == Decimal("0.30")
    nines = Decimal("9" * 38)
    minus = nines.copy_negate()
    assert result(agg.sum("x"), [nines, minus, minus], pa.decimal128(38, 0)) == minus


def test_min_and_max_take_nan_for_the_greatest_and_both_zeros_for_one():
    nan = math.nan
    assert result(agg.min("x"), [nan, 2.0, nan, 1.0]) == 1.0
    assert math.isnan(result(agg.max("x"), [1.0, nan, 2.0]))
    assert math.isnan(result(agg.min("x"), [nan, nan]))
    assert math.copysign(1, result(agg.min("x"), [-0.0, 0.0])) == 1


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["b", "a", "ä", None], pa.string()),
        ([b"b", b"\x00", b"\xff"], pa.binary()),
        ([True, False, None], pa.bool_()),
        ([date(2026, 1, 2), date(1999, 1, 1)], pa.date32()),
        ([datetime(2026, 1, 2), None, datetime(1960, 1, 1)], pa.timestamp("us")),
        ([Decimal("-1.50"), Decimal("2.25")], pa.decimal128(9, 2)),
        ([3, 1, 2], pa.uint16()),
        ([1.5, -2.5], pa.float32()),
    ],
)
def test_min_max_first_last_and_collect_of_any_type(values, kind):
    known = [each for each in values if each is not None]
    assert result(agg.min("x"), values, kind) == min(known)
    assert result(agg.max("x"), values, kind) == max(known)
    assert result(agg.first("x"), values, kind) == values[0]
    assert result(agg.last("x"), values, kind) == values[-1]
    assert result(agg.collect("x"), values, kind) == known


def test_first_last_and_collect_go_by_event_time_not_by_arrival():
    values, times = ["late", None, "early", "middle"], [40, 50, 10, 20]
    assert result(agg.first("x"), values, times=times) == "early"
    assert result(agg.last("x"), values, times=times) is None
    assert result(agg.last("x", ignore_nulls=True), values, times=times) == "late"
    assert result(agg.collect("x", 2), values, times=times) == ["early", "middle"]


def test_variance_is_exact_where_the_usual_formula_fails():
    assert result(agg.variance("x"), [1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16]) == 30.0
    assert result(agg.stddev("x"), [2, 4], pa.int64()) == math.sqrt(2.0)
    assert result(agg.variance("x"), [1e200, -1e200]) == math.inf
    assert result(agg.variance("x"), [1e-170, 3e-170]) == pytest.approx(0.0)


def test_variance_of_integers_is_exact_however_large_they_are():
    ids = [2**62 + each for each in (4, 7, 13, 16)]
    for kind in (pa.int64(), pa.uint64()):
        assert found_of(agg.variance("x"), ids, kind) == 30.0
    assert found_of(agg.variance("x"), [-each for each in ids], pa.int64()) == 30.0
    assert found_of(agg.stddev("x"), [LARGEST, LARGEST - 2], pa.int64()) == math.sqrt(2.0)
    extremes = [-(2**63), LARGEST, 0, 1]
    mean = Fraction(sum(extremes), 4)
    assert found_of(agg.variance("x"), extremes, pa.int64()) == float(
        sum((each - mean) ** 2 for each in extremes) / 3
    )


def test_variance_takes_a_decimal_for_the_nearest_double():
    values = [Decimal(each) for each in ("12345.67", "-0.07", "9999999.99", "33.30")]
    exact = [Fraction(float(each)) for each in values]
    mean = sum(exact) / 4
    expected = float(sum((each - mean) ** 2 for each in exact) / 3)
    assert found_of(agg.variance("x"), values, pa.decimal128(9, 2)) == expected


def found_of(aggregate, values, kind):
    """The operator's own result, whatever the definition in batch says."""
    operator = WindowOperator(tumbling("1 minute"), (), (("result", aggregate),))
    rows = table_of(list(range(len(values))), x=pa.array(values, kind))
    (only,) = closed(operator, *(rows.slice(at, 1) for at in range(len(values))))
    return only["after"]["result"]


class Careless(Product):
    def merge(self, states, groups):
        return states


def test_an_aggregate_of_ones_own():
    assert result(agg.custom(Product()), [2.0, 3.0, 7.0]) == 42.0
    with pytest.raises(RequestError, match="returned 2 values for 1 groups"):
        result(agg.custom(Careless()), [2.0, 3.0, 7.0])


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        (agg.sum("y"), "there is no column 'y'"),
        (agg.sum("x"), "'x' of type string has no sum"),
        (agg.variance("x"), "has no sum"),
        (agg.count("y"), "there is no column 'y'"),
    ],
)
def test_what_does_not_fit_the_rows_is_refused_by_name(aggregate, message):
    operator = WindowOperator(tumbling("1 minute"), (), (("result", aggregate),))
    with pytest.raises(RequestError, match=message):
        operator.result_schema(table_of([0], x=["a"]).schema)
    with pytest.raises(RequestError, match="limit"):
        agg.collect("x", 0)
