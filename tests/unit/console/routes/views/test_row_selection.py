"""Filters and cursors of a query string, against the one meaning that all stores share."""

import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.console.problems import ProblemError
from headrace.console.routes.views.row_selection import (
    conditions,
    cursor_after,
    full_order,
    order_of,
    read_cursor,
    segments_after,
)
from headrace.views import Condition, Order, ViewSchema
from headrace.views.selection import Selection, select

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("score", pa.float64()),
        ("good", pa.bool_()),
        ("at", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
    ]
)
SCHEMA = ViewSchema("view", ("id", "name"), COLUMNS)
NAMES = COLUMNS.names

VALUES = {
    "name": st.none() | st.sampled_from(["", "a", "ä", "b,c", "\x00", "zz"]),
    "score": st.none() | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5]),
    "good": st.none() | st.booleans(),
    "at": st.none() | st.datetimes().map(lambda each: each.replace(microsecond=each.microsecond)),
    "raw": st.none() | st.binary(max_size=2),
    "price": st.none() | st.decimals(-5, 5, places=2),
    "day": st.none() | st.dates(),
}
ROWS = st.lists(st.fixed_dictionaries(VALUES), max_size=12)
ORDERS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.booleans()), max_size=4, unique_by=lambda each: each[0]
)


def table_of(rows):
    listed = [{"id": index // 2, **row} for index, row in enumerate(rows)]
    seen, unique = set(), []
    for row in listed:
        if (row["id"], row["name"]) not in seen:
            seen.add((row["id"], row["name"]))
            unique.append(row)
    return pa.Table.from_pylist(unique, schema=COLUMNS)


def page_of(table, order, cursor, limit):
    segments = [()] if cursor is None else segments_after(order, read_cursor(SCHEMA, order, cursor))
    parts = [COLUMNS.empty_table()]
    for segment in segments:
        left = limit - sum(each.num_rows for each in parts)
        parts.append(select(table, Selection.of(SCHEMA, segment, order, left)))
    return pa.concat_tables(parts)


@settings(max_examples=60)
@given(ROWS, ORDERS, st.integers(1, 5))
def test_pages_one_after_the_other_are_the_whole_view_in_its_order(rows, given_order, limit):
    table = table_of(rows)
    order = full_order(SCHEMA, [Order(*each) for each in given_order])
    whole = select(table, Selection.of(SCHEMA, (), order))
    pages, cursor = [COLUMNS.empty_table()], None
    while (page := page_of(table, order, cursor, limit)).num_rows:
        pages.append(page)
        cursor = cursor_after(order, page)
    assert repr(pa.concat_tables(pages).to_pylist()) == repr(whole.to_pylist())  # NaN is equal to itself


@settings(max_examples=60)
@given(ROWS, ORDERS, st.data())
def test_a_row_that_goes_meanwhile_hides_no_other(rows, given_order, data):
    table = table_of(rows)
    order = full_order(SCHEMA, [Order(*each) for each in given_order])
    whole = select(table, Selection.of(SCHEMA, (), order))
    if not whole.num_rows:
        return
    place = data.draw(st.integers(0, whole.num_rows - 1))
    gone = data.draw(st.integers(0, place))
    cursor = cursor_after(order, whole.slice(0, place + 1))
    rest = pa.concat_tables([whole.slice(0, gone), whole.slice(gone + 1)])
    following = page_of(rest, order, cursor, 100)
    assert repr(following.to_pylist()) == repr(whole.slice(place + 1).to_pylist())


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("id", "5", Condition("id", "=", "5")),
        ("id.ge", "5", Condition("id", ">=", "5")),
        ("limit.eq", "5", Condition("limit", "=", "5")),
        ("name.prefix", "a", Condition("name", "prefix", "a")),
        ("name.in", "a,b", Condition("name", "in", ["a", "b"])),
        ("name.in", '["a,b","c"]', Condition("name", "in", ["a,b", "c"])),
        ("name.null", "true", Condition("name", "is_null")),
        ("name.null", "false", Condition("name", "not_null")),
        ("a.ge", "1", Condition("a.ge", "=", "1")),
        ("a.ge.lt", "1", Condition("a.ge", "<", "1")),
    ],
)
def test_forms_of_a_filter(name, text, found):
    assert conditions([*NAMES, "limit", "a.ge"], [(name, text), ("limit", "1")], ["limit"]) == [found]


@pytest.mark.parametrize(
    ("name", "text"),
    [("nope", "1"), ("nope.ge", "1"), ("id.like", "1"), ("name.null", "x"), ("name.in", "[1"), ("id.", "1")],
)
def test_filters_that_mean_nothing_are_refused(name, text):
    with pytest.raises(ProblemError) as refused:
        conditions(NAMES, [(name, text)], [])
    assert refused.value.problem.status == 400


def test_an_order_is_columns_with_a_minus_for_falling_ones():
    assert order_of("-score, name,") == [Order("score", True), Order("name")]
    assert order_of(None) == []
    with pytest.raises(ProblemError):
        order_of("id,-id")


@given(st.text(max_size=60))
def test_any_text_is_refused_as_a_cursor(text):
    with pytest.raises(ProblemError):
        read_cursor(SCHEMA, full_order(SCHEMA, []), text)


def test_a_cursor_of_another_order_is_refused():
    table = table_of([dict.fromkeys(VALUES)])
    cursor = cursor_after(full_order(SCHEMA, []), table)
    with pytest.raises(ProblemError):
        read_cursor(SCHEMA, full_order(SCHEMA, [Order("score")]), cursor)
