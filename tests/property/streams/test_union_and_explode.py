"""Unions and exploded arrays equal DuckDB's answer after every batch of changes."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples
from tests.property.streams.joins.histories import NUMBERS, TEXTS, add, rows_of, table_of
from tests.property.streams.rows_that_come_and_go import DATABASE, histories, stamped

from headrace.errors import RequestError
from headrace.streams.operators import Explode, Union

PLAIN = pa.schema([("a", pa.int64()), ("b", pa.string())])
ROWS = st.fixed_dictionaries({"a": NUMBERS, "b": TEXTS})
LISTS = pa.schema([("a", pa.int64()), ("xs", pa.list_(pa.string())), ("b", pa.string())])
ARRAYS = st.one_of(st.none(), st.lists(st.sampled_from(["x", "", None]), max_size=3))
LIST_ROWS = st.fixed_dictionaries({"a": NUMBERS, "xs": ARRAYS, "b": TEXTS})
ELEMENTS = """
select a, xs[i] as x, (i - 1)::int as place, b from rows, unnest(generate_series(1, len(xs))) as each(i)
"""
NOTHING = "union all select a, null, null, b from rows where xs is null or len(xs) = 0"


@settings(max_examples=examples(24), deadline=None)
@given(data=st.data())
def test_a_union_has_the_rows_of_all_inputs_by_the_names_of_their_columns(data):
    turned = pa.schema(list(PLAIN)[::-1])
    state, total = Union(2).new_state([PLAIN, turned]), rows_of(None)
    sides = [data.draw(histories(ROWS)) for _ in range(2)]
    for (left, one, _), (right, other, _) in zip(*sides, strict=False):
        step = state.advance([table_of(left, stamped(PLAIN)), table_of(right, stamped(turned))], (0, 0))
        add(total, rows_of(step.changes))
        DATABASE.register("l", table_of(one, PLAIN))
        DATABASE.register("r", table_of(other, turned))
        assert total == rows_of(DATABASE.sql("from l union all by name from r").to_arrow_table())


@pytest.mark.parametrize("outer", [False, True])
@settings(max_examples=examples(32), deadline=None)
@given(history=histories(LIST_ROWS))
def test_an_exploded_array_has_a_row_for_each_element(outer, history):
    sql = ELEMENTS + (NOTHING if outer else "")
    state, total = Explode("xs", "x", "place", outer).new_state([LISTS]), rows_of(None)
    for changes, present, _ in history:
        add(total, rows_of(state.advance([table_of(changes, stamped(LISTS))], (0,)).changes))
        DATABASE.register("rows", table_of(present, LISTS))
        assert total == rows_of(DATABASE.sql(sql).to_arrow_table())


def test_rows_of_a_union_can_be_told_by_input_and_partition_again():
    def rows(partition, offset):
        row = {"a": 1, "b": "x", "_partition": partition, "_offset": offset, "_event_time": 1}
        return table_of([{**row, "_weight": 1}], stamped(PLAIN))

    union = Union(2)
    out = union.new_state([PLAIN, PLAIN]).advance([rows(3, 7), rows(3, 7)], (0, 0)).changes
    places = list(zip(out["_partition"].to_pylist(), out["_offset"].to_pylist(), strict=True))
    assert len(set(places)) == 2
    for number in (0, 1):
        assert union.of_input(number, out)["_partition"].to_pylist() == [3]


def test_unions_of_other_columns_and_explosions_of_no_arrays_are_refused():
    with pytest.raises(RequestError, match="b is string in the first and there is no b in number 2"):
        Union(2).result([PLAIN, pa.schema([("a", pa.int64())])])
    with pytest.raises(RequestError, match="only arrays are exploded"):
        Explode("a", "a").result([PLAIN])
    with pytest.raises(RequestError, match="no column 'z'"):
        Explode("z", "z").result([PLAIN])
