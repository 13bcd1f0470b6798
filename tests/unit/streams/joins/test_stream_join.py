import numpy as np
import pyarrow as pa
import pytest
from tests.unit.streams.joins.streams import ALWAYS, NEVER, aside, given, stream

from headrace.errors import RequestError
from headrace.streams.operators import StreamJoin
from headrace.streams.operators.joins import columns

SEARCHES = pa.schema([("user", pa.int64()), ("text", pa.string())])
CLICKS = pa.schema([("user", pa.int64()), ("page", pa.string())])


def join(**options):
    return StreamJoin(left_on=("user",), right_on=("user",), **options)


def state_of(**options):
    return join(**options).new_state((SEARCHES, CLICKS))


def searches(*rows, **stamps):
    return stream(SEARCHES, *rows, **stamps)


def clicks(*rows, **stamps):
    return stream(CLICKS, *rows, **stamps)


def test_rows_are_pairs_up_to_both_ends_of_the_bound():
    state = state_of(before_us=2, after_us=3)
    times = [7, 8, 9, 10, 13, 14]
    step = state.advance(
        [searches((10, 1, "q")), clicks(*((time, 1, str(time)) for time in times))], (NEVER, NEVER)
    )
    assert [row[3] for row in given(step)] == ["10", "13", "8", "9"]


def test_a_search_nobody_clicked_comes_out_when_its_bound_has_passed_and_not_before():
    state = state_of(after_us=5, how="left")
    assert given(state.advance([searches((10, 1, "q")), None], (100, 15))) == []
    assert given(state.advance([None, None], (100, 16))) == [(10, 1, "q", None, 1)]
    assert given(state.advance([None, None], (ALWAYS, ALWAYS))) == []


def test_a_click_without_a_search_waits_for_the_other_end_of_the_bound():
    state = state_of(before_us=4, after_us=5, how="full")
    assert given(state.advance([None, clicks((10, 1, "p"))], (14, 100))) == []
    assert given(state.advance([None, None], (15, 100))) == [(10, 1, None, "p", 1)]


def test_a_late_partner_withdraws_what_had_come_out_alone():
    state = state_of(after_us=5, how="left", late="correct", correct_for_us=10)
    state.advance([searches((10, 1, "q")), None], (10, 10))
    assert given(state.advance([None, None], (10, 20))) == [(10, 1, "q", None, 1)]
    step = state.advance([None, clicks((12, 1, "p"), (13, 1, "r"), watermark=20)], (10, 20))
    assert given(step) == [(10, 1, "q", "p", 1), (10, 1, "q", "r", 1), (10, 1, "q", None, -1)]
    assert step.counts == {1: {"corrected": 2}}
    step = state.advance([None, clicks((14, 1, "s"), watermark=20)], (10, 20))
    assert given(step) == [(10, 1, "q", "s", 1)]


def test_a_late_row_is_dropped_and_put_aside_with_its_columns():
    state = state_of(after_us=5)
    state.advance([searches((10, 1, "q")), None], (NEVER, NEVER))
    step = state.advance([None, clicks((12, 1, "p"), (13, 1, "r"), watermark=13)], (NEVER, 13))
    assert given(step) == [(10, 1, "q", "r", 1)]
    assert step.counts == {1: {"dropped": 1}}
    assert aside(step, 1) == [(12, "late")]
    assert step.aside[1]["page"].to_pylist() == ["p"]


def test_what_is_too_late_even_to_correct_is_dropped():
    state = state_of(after_us=5, late="correct", correct_for_us=3)
    step = state.advance([searches((9, 1, "q"), (10, 1, "q"), watermark=13), None], (13, NEVER))
    assert step.counts == {0: {"dropped": 1, "corrected": 1}}
    assert aside(step, 0) == [(9, "late")]


def test_a_row_of_an_idle_partition_is_joined_with_what_is_held_and_dropped_if_nothing_can_be():
    state = state_of(before_us=5, after_us=5)
    state.advance([searches((10, 1, "a"), (20, 1, "b")), None], (20, 20))  # forgets searches before 15
    step = state.advance([None, clicks((9, 1, "p"), (16, 1, "q"), partition=1)], (20, 20))
    assert given(step) == [(20, 1, "b", "q", 1)]
    assert step.counts == {1: {"incomplete": 1, "dropped": 1, "forgotten": 1}}
    assert aside(step, 1) == [(9, "state gone")]


def test_rows_are_forgotten_when_no_partner_can_come_any_more():
    state = state_of(before_us=2, after_us=5, late="correct", correct_for_us=10)
    state.advance([searches((10, 1, "q")), clicks((10, 2, "p"))], (10, 10))
    assert state.row_count == 2
    state.advance([None, None], (22, 25))
    assert state.row_count == 2
    state.advance([None, None], (23, 25))
    assert state.row_count == 1
    state.advance([None, None], (23, 26))
    assert state.row_count == 0


def test_a_null_in_the_key_matches_nothing_and_comes_out_alone():
    state = state_of(after_us=5, how="full")
    step = state.advance([searches((10, None, "q")), clicks((10, None, "p"))], (ALWAYS, ALWAYS))
    assert given(step) == [(10, None, "q", None, 1), (10, None, None, "p", 1)]
    inner = state_of(after_us=5)
    inner.advance([searches((10, None, "q")), None], (NEVER, NEVER))
    assert inner.row_count == 0


def test_stamps_are_those_of_the_left_row_or_of_the_right_one_alone():
    state = state_of(after_us=5, how="full")
    rows = [
        searches((10, 1, "q"), partition=3, offset=7, watermark=4),
        clicks((11, 1, "p"), (11, 2, "r"), partition=5, offset=8, watermark=6),
    ]
    step = state.advance(rows, (ALWAYS, ALWAYS))
    by_page = {row["page"]: row for row in step.changes.to_pylist()}
    stamps = ["_partition", "_offset", "_event_time", "_watermark"]
    assert [by_page["p"][name] for name in stamps] == [3, 7, 10, 4]
    assert [by_page["r"][name] for name in stamps] == [5, 9, 11, 6]


def test_what_comes_out_is_behind_the_watermarks_by_no_more_than_the_delay():
    assert join(after_us=5, before_us=9).delay_us == 5
    assert join(after_us=5, before_us=9, how="right").delay_us == 9
    assert join(after_us=-5, before_us=9, late="correct", correct_for_us=3).delay_us == 3


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_keys_whose_hashes_collide_are_told_apart(how, monkeypatch):
    def steps():
        state = state_of(before_us=3, after_us=3, how=how, late="correct", correct_for_us=50)
        out = []
        for batch in range(4):
            rows = [(10 * batch + user % 7, user, f"{batch}") for user in range(8) if (user + batch) % 3]
            more = [(10 * batch + user % 5 - 2, user, f"{batch}") for user in range(8) if (user * batch) % 2]
            out.append(given(state.advance([searches(*rows), clicks(*more)], (10 * batch, 10 * batch + 5))))
        return out

    expected = steps()
    whole = columns.hash_columns
    monkeypatch.setattr(columns, "hash_columns", lambda *given: whole(*given) % 2)
    assert steps() == expected


def many(schema, keys, times):
    rows = len(keys)
    stamps = {"_partition": np.zeros(rows, np.int32), "_offset": np.arange(rows), "_event_time": times}
    stamps |= {"_watermark": pa.nulls(rows, pa.int64()), "_weight": np.ones(rows, np.int64)}
    return pa.table({"user": keys, schema.names[1]: pa.array([""] * rows), **stamps})


@pytest.mark.parametrize("how", ["inner", "full"])
def test_a_row_costs_the_same_however_many_are_held(how):
    costs = []
    for held in (2_000, 200_000):
        state = state_of(before_us=1000, after_us=1000, how=how)
        keys, times = np.arange(held), np.full(held, 500)
        state.advance([many(SEARCHES, keys, times), many(CLICKS, keys, times)], (NEVER, NEVER))
        before = state.touched
        for number in range(300):
            state.advance([searches((600 + number, number, "q")), None], (number, number))
        costs.append((state.touched - before) / 300)
        assert state.row_count == 2 * held + 300
    assert costs[1] <= 1.2 * costs[0] < 30


def test_a_row_of_a_key_with_very_many_looks_only_at_those_within_the_bound():
    state = state_of(before_us=2, after_us=2)
    times = np.arange(100_000)
    state.advance([None, many(CLICKS, np.ones(100_000, np.int64), times)], (NEVER, NEVER))
    before = state.touched
    step = state.advance([searches((50_000, 1, "q")), None], (NEVER, NEVER))
    assert step.changes.num_rows == 5
    assert state.touched - before == 6


def test_forgotten_rows_leave_memory():
    state = state_of(before_us=10, after_us=10)
    for batch in range(200):
        times = np.full(100, 10 * batch)
        rows = [many(SEARCHES, np.arange(100), times), many(CLICKS, np.arange(100), times)]
        state.advance(rows, (10 * batch, 10 * batch))
    assert state.row_count == 400
    assert sum(len(run.times) for held in state._held for run in held.runs) <= 1_600


def test_a_delta_is_as_small_as_what_arrived():
    state = state_of(before_us=10, after_us=10, how="full")
    state.advance([many(SEARCHES, np.arange(100_000), np.zeros(100_000, np.int64)), None], (NEVER, NEVER))
    assert len(state.advance([searches((1, 1, "q")), clicks((1, 1, "p"))], (NEVER, NEVER)).delta) < 6_000


def test_what_cannot_be_is_refused():
    for options, message in (
        ({"before_us": -5, "after_us": 4}, "no time is within"),
        ({"how": "semi"}, "'semi' is none of these"),
        ({"late": "keep"}, "drop or correct"),
        ({"correct_for_us": 5}, 'is for late="correct"'),
    ):
        with pytest.raises(RequestError, match=message):
            join(**options)


def test_operators_that_differ_describe_themselves_differently():
    others = [join(how="left"), join(before_us=1), join(after_us=1), join(late="correct")]
    assert join().describe() == join().describe()
    assert all(other.describe() != join().describe() for other in others)
