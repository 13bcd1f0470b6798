import pyarrow as pa
import pytest

from headrace.errors import CorruptionError, RequestError
from headrace.streams.operators import TableJoin
from headrace.streams.operators.joins import columns, values

USERS = pa.schema([("id", pa.int64()), ("name", pa.string())])
ORDERS = pa.schema([("number", pa.int64()), ("id", pa.int64()), ("sum", pa.float64())])


def users(*rows):
    return _changes(rows, ("id", "name"), USERS)


def orders(*rows):
    return _changes(rows, ("number", "id", "sum"), ORDERS)


def _changes(rows, names, schema):
    if not rows:
        return None
    listed = [dict(zip((*names, "_weight"), row, strict=True)) for row in rows]
    return pa.Table.from_pylist(listed, schema=pa.schema([*schema, ("_weight", pa.int64())]))


def changes(state, *arrived):
    table = state.advance(arrived, (0, 0)).changes
    if table is None:
        return []
    assert all(table[name].null_count == table.num_rows for name in ("_partition", "_offset", "_watermark"))
    names = [name for name in table.column_names if not name.startswith("_")]
    return sorted(zip(*(table[name].to_pylist() for name in [*names, "_weight"]), strict=True), key=repr)


def joined(how, **options):
    return TableJoin(left_on=("id",), right_on=("id",), how=how, **options).new_state((USERS, ORDERS))


def test_a_changed_row_of_one_side_changes_every_pair_it_is_in():
    state = joined("inner")
    assert changes(state, users((1, "ann", 1)), orders((7, 1, 2.0, 1), (8, 1, 3.0, 1))) == [
        (1, "ann", 7, 2.0, 1),
        (1, "ann", 8, 3.0, 1),
    ]
    assert changes(state, users((1, "ann", -1), (1, "anna", 1)), None) == [
        (1, "ann", 7, 2.0, -1),
        (1, "ann", 8, 3.0, -1),
        (1, "anna", 7, 2.0, 1),
        (1, "anna", 8, 3.0, 1),
    ]


def test_a_row_loses_its_nulls_when_a_partner_comes_and_has_them_again_when_the_last_goes():
    state = joined("left")
    assert changes(state, users((1, "ann", 1)), None) == [(1, "ann", None, None, 1)]
    assert changes(state, None, orders((7, 1, 2.0, 1))) == [(1, "ann", 7, 2.0, 1), (1, "ann", None, None, -1)]
    assert changes(state, None, orders((8, 1, 2.0, 1))) == [(1, "ann", 8, 2.0, 1)]
    assert changes(state, None, orders((7, 1, 2.0, -1), (8, 1, 2.0, -1))) == [
        (1, "ann", 7, 2.0, -1),
        (1, "ann", 8, 2.0, -1),
        (1, "ann", None, None, 1),
    ]


def test_a_row_without_partners_and_one_whose_partner_has_only_nulls_are_the_same_row():
    state = TableJoin(left_on=("id",), right_on=("id",), how="left")
    state = state.new_state((USERS, pa.schema([("id", pa.int64()), ("note", pa.string())])))
    assert changes(state, users((1, "ann", 1)), None) == [(1, "ann", None, 1)]
    note = pa.table({"id": [1], "note": pa.array([None], pa.string()), "_weight": [1]})
    assert changes(state, None, note) == []


def test_a_row_that_comes_and_goes_in_one_batch_was_never_there():
    state = joined("full")
    assert changes(state, users((1, "ann", 1), (1, "ann", -1)), orders((7, 1, 2.0, 1), (7, 1, 2.0, -1))) == []
    assert state.row_count == 0


def test_a_semi_join_keeps_of_the_other_side_only_how_many_rows_each_key_has():
    state = joined("semi")
    changes(state, users((1, "ann", 1)), orders(*((number, 1, 2.0, 1) for number in range(100))))
    assert state.row_count == 2
    assert changes(state, None, orders(*((number, 1, 2.0, -1) for number in range(99)))) == []
    assert changes(state, None, orders((99, 1, 2.0, -1))) == [(1, "ann", -1)]


def test_the_keys_of_unmatched_right_rows_stand_in_the_common_column():
    assert changes(joined("right"), None, orders((7, 5, 2.0, 1))) == [(5, None, 7, 2.0, 1)]


def test_keys_of_different_names_are_both_there():
    other = pa.schema([("user", pa.int64()), ("note", pa.string())])
    state = TableJoin(left_on=("id",), right_on=("user",), how="full").new_state((USERS, other))
    note = pa.table({"user": [1, 2], "note": ["x", "y"], "_weight": [1, 1]})
    assert changes(state, users((1, "ann", 1)), note) == [(1, "ann", 1, "x", 1), (None, None, 2, "y", 1)]


def test_columns_of_any_type_are_joined_and_summed():
    kinds = [
        pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())])),
        pa.map_(pa.string(), pa.float64()),
        pa.dictionary(pa.int32(), pa.string()),
        pa.large_string(),
        pa.null(),
        pa.month_day_nano_interval(),
        pa.list_(pa.list_(pa.int8()), 2),
    ]
    cells = [
        [[{"a": 1, "b": "x"}, None], [{"a": 1, "b": "x"}], [], None],
        [[("a", 1.0)], [], None, [("a", None)]],
        ["a", "b", None, "a"],
        ["a", "", None, "a"],
        [None] * 4,
        [pa.MonthDayNano([1, 2, 3]), None, pa.MonthDayNano([0, 0, 0]), pa.MonthDayNano([1, 2, 4])],
        [[[1], [2, 3]], None, [None, []], [[1], [2, 4]]],
    ]
    arrays = [pa.array(each, kind) for each, kind in zip(cells, kinds, strict=True)]
    names = [f"c{number}" for number in range(len(kinds))]
    right = pa.table([pa.array([1, 1, 1, 1]), *arrays, pa.array([1] * 4)], names=["id", *names, "_weight"])
    state = TableJoin(left_on=("id",), right_on=("id",)).new_state((USERS, right.schema))
    assert len(changes(state, users((1, "ann", 1)), right)) == 4
    gone = right.set_column(right.num_columns - 1, "_weight", pa.array([-1] * 4)).take([3, 1, 0])
    again = TableJoin(left_on=("id",), right_on=("id",)).new_state((USERS, right.schema))
    again.replay(state.snapshot())
    out = changes(again, None, pa.concat_tables([gone, right.slice(1, 1), right.slice(1, 1)]))
    assert sorted(row[-1] for row in out) == [-1, -1, 1]
    assert again.snapshot()  # and is merged
    assert again.row_count == 3


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_keys_and_rows_whose_hashes_collide_are_told_apart(how, monkeypatch):
    def steps():
        state = joined(how)
        everyone = users(*((number, name, 1) for number in range(6) for name in "ab"))
        bought = orders(*((10 * user + n, user, 1.0, 1) for user in range(3, 9) for n in range(2)))
        out = [changes(state, everyone, None), changes(state, None, bought)]
        gone = orders(*((10 * user + n, user, 1.0, -1) for user in (3, 4) for n in range(2)))
        return [*out, changes(state, users((5, "a", -1), (5, "c", 1)), gone), changes(state, None, bought)]

    expected = steps()
    whole = columns.hash_columns
    for module in (columns, values):
        monkeypatch.setattr(module, "hash_columns", lambda *given: whole(*given) % 2)
    assert steps() == expected


def test_a_name_that_both_sides_have_is_refused_with_what_to_do():
    other = pa.schema([("id", pa.int64()), ("name", pa.string())])
    with pytest.raises(RequestError, match="both sides of the join have a column 'name'; rename it"):
        TableJoin(left_on=("id",), right_on=("id",)).result((USERS, other))
    renamed = TableJoin(left_on=("id",), right_on=("id",), right_names=(("name", "seller"),))
    assert renamed.result((USERS, other)).names == ["id", "name", "seller"]
    assert TableJoin(left_on=("id",), right_on=("id",), how="semi").result((USERS, other)) == USERS


def test_keys_that_cannot_be_compared_are_refused():
    for other, message in (
        (pa.schema([("id", pa.string())]), "cast one of them"),
        (pa.schema([("number", pa.int64())]), "no column 'id' to join on; it has number"),
    ):
        with pytest.raises(RequestError, match=message):
            TableJoin(left_on=("id",), right_on=("id",)).result((USERS, other))
    with pytest.raises(RequestError, match="1 columns of the left and 2 of the right"):
        TableJoin(left_on=("id",), right_on=("id", "number")).result((USERS, ORDERS))
    with pytest.raises(RequestError, match="'outer' is none of these"):
        TableJoin(left_on=("id",), right_on=("id",), how="outer")


def test_what_is_no_stored_state_is_refused():
    with pytest.raises(CorruptionError):
        joined("inner").replay(b"nonsense")


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_a_change_costs_the_same_however_many_rows_are_held(how):
    costs = []
    for held in (1_000, 30_000):
        state = joined(how)
        ids = pa.array(range(held))
        state.advance(
            [
                pa.table({"id": ids, "name": ids.cast(pa.string()), "_weight": pa.array([1] * held)}),
                pa.table({"number": ids, "id": ids, "sum": ids.cast(pa.float64()), "_weight": [1] * held}),
            ],
            (0, 0),
        )
        before = state.touched
        for number in range(200):
            changes(state, users((number, str(number), -1), (number, "x", 1)), None)
            changes(state, None, orders((number, number, float(number), -1), (number, number, 0.5, 1)))
        costs.append((state.touched - before) / 400)
    assert costs[1] <= 1.2 * costs[0] < 60


@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
def test_a_change_among_many_rows_of_one_key_does_not_look_at_the_others(how):
    state, many = joined(how), 100_000
    numbers = pa.array(range(many))
    one = pa.array([1] * many)
    bought = pa.table({"number": numbers, "id": one, "sum": numbers.cast(pa.float64()), "_weight": one})
    changes(state, users((1, "ann", 1)), bought)
    before = state.touched
    for number in range(100):
        changes(state, None, orders((number, 1, float(number), -1), (number, 1, 0.5, 1)))
    assert (state.touched - before) / 100 < 60


def test_a_delta_is_as_small_as_what_arrived():
    state = joined("full")
    ids = pa.array(range(100_000))
    state.advance(
        [pa.table({"id": ids, "name": ids.cast(pa.string()), "_weight": [1] * len(ids)}), None], (0, 0)
    )
    assert len(state.advance([users((1, "ann", 1)), orders((1, 1, 0.0, 1))], (0, 0)).delta) < 4_000


def test_operators_that_differ_describe_themselves_differently():
    one = TableJoin(left_on=("id",), right_on=("id",))
    others = [
        TableJoin(left_on=("id",), right_on=("id",), how="left"),
        TableJoin(left_on=("id",), right_on=("number",)),
        TableJoin(left_on=("id",), right_on=("id",), right_names=(("sum", "total"),)),
    ]
    assert one.describe() == TableJoin(left_on=("id",), right_on=("id",)).describe()
    assert all(one.describe() != other.describe() for other in others)
