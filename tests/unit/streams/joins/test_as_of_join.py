import numpy as np
import pyarrow as pa
import pytest
from tests.unit.streams.joins.streams import ALWAYS, NEVER, aside, given, stream

from headrace.errors import RequestError
from headrace.streams.operators import AsOfJoin
from headrace.streams.operators.joins import columns

SALES = pa.schema([("country", pa.string()), ("amount", pa.int64())])
RATES = pa.schema([("country", pa.string()), ("rate", pa.int64()), ("_deleted", pa.bool_())])


def join(**options):
    return AsOfJoin(left_on=("country",), right_on=("country",), **options)


def state_of(**options):
    return join(**options).new_state((SALES, RATES))


def sales(*rows, **stamps):
    return stream(SALES, *rows, **stamps)


def rates(*rows, **stamps):
    return stream(RATES, *((*row, False) if len(row) == 3 else row for row in rows), **stamps)


def test_a_sale_has_the_rate_of_its_time_also_when_it_came_early_or_late():
    state = state_of()
    assert given(state.advance([sales((15, "de", 1)), None], (15, NEVER))) == []
    step = state.advance([None, rates((0, "de", 19), (10, "de", 16), (20, "de", 21))], (15, 20))
    assert given(step) == [(15, "de", 1, 16, 1)]
    step = state.advance([sales((5, "de", 2), (20, "de", 3), (9, "de", 4), watermark=15), None], (20, 21))
    assert given(step) == [(20, "de", 3, 21, 1), (5, "de", 2, 19, 1), (9, "de", 4, 19, 1)]


def test_a_sale_waits_until_the_watermark_of_the_table_is_past_its_time():
    state = state_of(how="left")
    assert given(state.advance([sales((15, "de", 1)), None], (ALWAYS, 15))) == []
    assert given(state.advance([None, None], (ALWAYS, 16))) == [(15, "de", 1, None, 1)]


def test_a_deleted_row_is_no_match():
    state = state_of(how="left")
    versions = rates((0, "de", 19), (10, "de", None, True), (20, "de", 21))
    step = state.advance([sales((9, "de", 1), (10, "de", 2), (20, "de", 3)), versions], (ALWAYS, ALWAYS))
    assert given(step) == [(10, "de", 2, None, 1), (20, "de", 3, 21, 1), (9, "de", 1, 19, 1)]


def test_of_versions_valid_from_one_time_the_last_in_the_log_counts():
    state = state_of()
    state.advance([None, rates((0, "de", 2), partition=1)], (NEVER, NEVER))
    state.advance([None, rates((0, "de", 3), partition=1, offset=1)], (NEVER, NEVER))
    state.advance([None, rates((0, "de", 1), offset=9)], (NEVER, NEVER))
    assert given(state.advance([sales((5, "de", 1)), None], (6, 6))) == [(5, "de", 1, 3, 1)]


def test_a_version_that_comes_late_corrects_the_events_that_should_have_had_it():
    state = state_of(how="left", late="correct", correct_for_us=10)
    events = sales((11, "de", 1), (15, "de", 2), (15, "fr", 3))
    step = state.advance([events, rates((0, "de", 19), (14, "de", 7))], (20, 20))
    assert len(given(step)) == 3
    step = state.advance([None, rates((11, "de", 16), (12, "fr", 20), watermark=20)], (20, 20))
    assert given(step) == [
        (11, "de", 1, 16, 1),
        (11, "de", 1, 19, -1),
        (15, "fr", 3, 20, 1),
        (15, "fr", 3, None, -1),
    ]
    assert step.counts == {1: {"corrected": 2}}


def test_a_late_version_that_says_the_same_changes_nothing():
    state = state_of(late="correct", correct_for_us=10)
    state.advance([sales((15, "de", 2)), rates((0, "de", 19))], (20, 20))
    assert given(state.advance([None, rates((11, "de", 19), watermark=20)], (20, 20))) == []


def test_a_dropped_version_is_put_aside_and_serves_later_events():
    state = state_of()
    state.advance([sales((15, "de", 1)), rates((0, "de", 19))], (16, 16))
    step = state.advance([sales((15, "de", 2), watermark=16), rates((10, "de", 16), watermark=16)], (20, 20))
    assert given(step) == [(15, "de", 2, 19, 1)]
    assert step.counts == {1: {"dropped": 1}}
    assert aside(step, 1) == [(10, "late")]
    assert given(state.advance([sales((16, "de", 3)), None], (20, 20))) == [(16, "de", 3, 16, 1)]


def test_latest_takes_the_newest_version_at_hand_and_does_not_wait():
    state = state_of(mode="latest", how="left")
    assert given(state.advance([sales((15, "de", 1)), None], (NEVER, NEVER))) == [(15, "de", 1, None, 1)]
    assert given(state.advance([None, rates((20, "de", 16))], (NEVER, NEVER))) == []
    step = state.advance([sales((15, "de", 2)), rates((10, "de", 19), offset=5)], (NEVER, NEVER))
    assert given(step) == [(15, "de", 2, 16, 1)]


def test_versions_that_no_event_can_get_any_more_are_forgotten_and_deletes_with_them():
    state = state_of(keep_us=10)
    state.advance([None, rates(*((time, "de", time) for time in range(100)))], (50, 100))
    state.advance([None, rates((5, "fr", 1), (6, "fr", None, True))], (50, 100))
    assert state.snapshot()
    assert state.row_count == 60  # from 40 on
    step = state.advance([sales((40, "de", 1), (45, "fr", 1), watermark=50), None], (50, 100))
    assert given(step) == [(40, "de", 1, 40, 1)]


def test_rows_later_than_versions_are_kept_are_dropped_by_their_own_stamps():
    state = state_of(keep_us=10)
    step = state.advance(
        [sales((39, "de", 1), (40, "de", 2), watermark=50), rates((30, "de", 1), watermark=41)],
        (NEVER, NEVER),
    )
    assert step.counts == {0: {"dropped": 1}, 1: {"dropped": 1}}
    assert (aside(step, 0), aside(step, 1)) == ([(39, "state gone")], [(30, "state gone")])


def test_an_event_of_an_idle_partition_is_joined_if_its_version_is_certain():
    state = state_of(keep_us=10, how="left")
    versions = rates((0, "de", 19), (20, "de", 16), (0, "fr", 20))
    state.advance([None, versions], (50, 50))
    for _ in range(2):
        step = state.advance(
            [sales((15, "de", 1), (25, "de", 2), (15, "fr", 3), partition=1), None], (50, 50)
        )
        assert given(step) == [(15, "fr", 3, 20, 1), (25, "de", 2, 16, 1)]
        assert aside(step, 0) == [(15, "state gone")]
        assert state.snapshot()  # and forgets the rate before


def test_a_null_in_the_key_matches_nothing():
    state = state_of(how="left")
    step = state.advance([sales((5, None, 1)), rates((0, None, 19))], (ALWAYS, ALWAYS))
    assert given(step) == [(5, None, 1, None, 1)]
    assert given(state_of().advance([sales((5, None, 1)), rates((0, None, 19))], (ALWAYS, ALWAYS))) == []


def test_keys_whose_hashes_collide_are_told_apart(monkeypatch):
    def steps():
        state, out = state_of(how="left", late="correct", correct_for_us=20, keep_us=20), []
        for batch in range(12):
            at = 5 * batch
            versions = rates(
                *((at + n % 3, f"c{n}", at + n, n % 5 == 4) for n in range(batch % 3, 9, 2)),
                offset=batch * 10,
            )
            events = sales(*((at + n % 5, f"c{n}", n) for n in range(9)))
            out.append(given(state.advance([events, versions], (at, at - 2))))
            if batch == 6:
                assert state.snapshot()
        return out

    expected = steps()
    whole = columns.hash_columns
    monkeypatch.setattr(columns, "hash_columns", lambda *given: whole(*given) % 2)
    assert steps() == expected


def many(schema, keys, times, **values):
    rows = len(keys)
    stamps = {"_partition": np.zeros(rows, np.int32), "_offset": np.arange(rows), "_event_time": times}
    stamps |= {"_watermark": pa.nulls(rows, pa.int64()), "_weight": np.ones(rows, np.int64)}
    return pa.table({"country": pa.array(keys).cast(pa.string()), **values, **stamps})


@pytest.mark.parametrize("mode", ["as_of", "latest"])
def test_an_event_costs_the_same_however_many_versions_are_held(mode):
    costs = []
    for held in (2_000, 200_000):
        state = state_of(mode=mode, keep_us=1_000_000)
        columns = {"rate": np.arange(held), "_deleted": np.zeros(held, np.bool_)}
        state.advance([None, many(RATES, np.arange(held), np.zeros(held, np.int64), **columns)], (0, 0))
        before = state.touched
        for number in range(200):
            arrived = [sales((number, str(number), 1)), rates((number, str(number), 2))]
            assert len(given(state.advance(arrived, (number, number + 1)))) == 1
        costs.append((state.touched - before) / 200)
    assert costs[1] <= 1.2 * costs[0] < 40


def test_an_event_of_a_key_with_very_many_versions_looks_at_one_of_them():
    state, held = state_of(), 100_000
    columns = {"rate": np.arange(held), "_deleted": np.zeros(held, np.bool_)}
    state.advance([None, many(RATES, np.ones(held, np.int64), np.arange(held), **columns)], (0, 0))
    before = state.touched
    step = state.advance([sales((50_000, "1", 1)), None], (NEVER, ALWAYS))
    assert given(step) == [(50_000, "1", 1, 50_000, 1)]
    assert state.touched - before <= 4


def test_a_delta_is_as_small_as_what_arrived():
    state, held = state_of(), 100_000
    columns = {"rate": np.arange(held), "_deleted": np.zeros(held, np.bool_)}
    state.advance([None, many(RATES, np.arange(held), np.zeros(held, np.int64), **columns)], (0, 0))
    assert len(state.advance([sales((1, "1", 1)), rates((1, "1", 1))], (0, 0)).delta) < 6_000


def test_what_cannot_be_is_refused():
    for options, message in (
        ({"how": "full"}, "'full' is none of these"),
        ({"mode": "newest"}, "as_of, latest"),
        ({"mode": "latest", "late": "correct"}, "never corrected"),
        ({"keep_us": -1}, "keep_us"),
        ({"correct_for_us": 5}, 'is for late="correct"'),
    ):
        with pytest.raises(RequestError, match=message):
            join(**options)
    with pytest.raises(RequestError, match="bool column '_deleted'"):
        join().result((SALES, SALES))
    assert join().result((SALES, RATES)).names == ["country", "amount", "rate"]


def test_operators_that_differ_describe_themselves_differently():
    others = [join(how="left"), join(mode="latest"), join(late="correct"), join(keep_us=1)]
    assert join().describe() == join().describe()
    assert all(other.describe() != join().describe() for other in others)


def test_a_version_on_time_leaves_alone_the_many_events_of_its_key_that_were_given_out():
    state = state_of(late="correct", correct_for_us=100)
    step = state.advance([sales(*((at, "de", at) for at in range(30))), rates((0, "de", 19))], (20, 20))
    assert len(given(step)) == 20
    assert given(state.advance([None, rates((25, "de", 16), watermark=20)], (20, 20))) == []
    step = state.advance([None, None], (30, 30))
    assert [row[3] for row in given(step)] == [19] * 5 + [16] * 5
