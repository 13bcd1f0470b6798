"""What every target of a derived system promises: rows and position together, by one owner at a time."""

from dataclasses import replace

import pytest
from tests.contract.derived_targets import NAMES, TARGETS, opened

from headrace.derived.changes import canonical
from headrace.derived.state import FollowState
from headrace.derived.target import StateLost
from headrace.errors import FencedError

STATE = FollowState(topic="customers", topic_id="t", owner="one", positions={0: 0, 1: 0})
ANN, BEN = b'{"id":1}', b'{"id":2}'


def never(key: bytes, why: str) -> None:
    raise AssertionError(f"{key!r} was refused: {why}")


@pytest.fixture(params=NAMES)
def spec(request, tmp_path):
    return TARGETS[request.param](request, tmp_path)


@pytest.fixture
def target(spec):
    made = opened(spec)
    yield made
    made.close()


def rows(target):
    return {key: canonical(row) for key, row in target.rows()}


def stored(target, **by_key):
    return {target.identity(key): canonical(target.stored(row)) for key, row in by_key["rows"].items()}


def test_a_new_target_is_empty_and_has_no_position(target):
    assert target.state() is None and target.is_empty() and list(target.rows()) == []


def test_rows_and_position_are_written_together_and_survive(spec, target):
    target.claim(STATE)
    ann, ben = {"id": 1, "name": "Ann", "city": "Oslo"}, {"id": 2, "name": "Ben"}
    done = STATE.moved({0: 5, 1: 7}, 1234)
    target.apply({ANN: ann, BEN: ben}, (), done, never)
    target.close()
    again = opened(spec)
    assert again.state() == done and not again.is_empty()
    assert rows(again) == stored(again, rows={ANN: ann, BEN: ben})
    again.close()


def test_an_upsert_replaces_the_whole_row_and_a_delete_removes_it(target):
    target.claim(STATE)
    target.apply({ANN: {"id": 1, "name": "Ann", "city": "Oslo"}, BEN: {"id": 2}}, (), STATE, never)
    target.apply({ANN: {"id": 1, "name": "Anna"}}, [BEN, b"nobody"], STATE, never)
    assert rows(target) == stored(target, rows={ANN: {"id": 1, "name": "Anna"}})
    assert target.get([ANN, BEN]) == {ANN: target.get([ANN])[ANN]}


def test_the_older_of_two_followers_is_fenced_and_writes_nothing(spec, target):
    target.claim(STATE)
    other = opened(spec)
    other.claim(replace(STATE, owner="two"))
    with pytest.raises(FencedError):
        target.apply({ANN: {"id": 1}}, (), STATE.moved({0: 1}, 0), never)
    assert other.state().owner == "two" and other.state().positions == {0: 0, 1: 0} and other.is_empty()
    other.close()


def test_a_target_that_lost_its_position_takes_no_rows(target):
    with pytest.raises(StateLost):
        target.apply({ANN: {"id": 1}}, (), STATE, never)
    assert target.is_empty()


def test_values_of_all_kinds_come_back_as_stored(target):
    row = {
        "text": 'ends with "; -- \\ \n \t é 漢 🚲',
        "empty": "",
        "whole": 2**62,
        "below": -(2**63),
        "real": 0.1,
        "tiny": 5e-324,
        "yes": True,
        "no": False,
        "none": None,
        "list": [1, None, "x", {"a": [True]}],
        "object": {"b": 1, "a": {"c": None}},
    }
    target.claim(STATE)
    target.apply({ANN: row}, (), STATE, never)
    assert rows(target) == stored(target, rows={ANN: row})


def test_values_of_a_megabyte_and_keys_of_any_bytes_are_kept(target):
    keys = [b"", b"\x00", b"\xff\xfe", b"a:b%c", b"'\"\\", "é".encode(), b"*?[x]", b"\n\r", b"k" * 400]
    must = {key: {"n": number, "name": "x" * 1_000_000} for number, key in enumerate(keys)}
    target.claim(STATE)
    target.apply(must, (), STATE, never)
    assert rows(target) == stored(target, rows=must)
    assert len({target.identity(key) for key in keys}) == len(keys)
    target.apply({}, keys, STATE, never)
    assert target.is_empty()


def test_a_field_that_comes_goes_and_changes_its_type_is_carried(target):
    target.claim(STATE)
    history = [
        {ANN: {"id": 1, "age": 7}},
        {BEN: {"id": 2, "age": 7.5, "new": "x"}},
        {ANN: {"id": 1, "age": "seven", "new": None}},
        {BEN: {"id": 2, "new": [1]}},
        {b"3": {"id": 3, "age": True, "new": {"a": 1}}},
    ]
    must = {}
    for batch in history:
        must |= batch
        target.apply(batch, (), STATE, never)
        assert rows(target) == stored(target, rows=must)


def test_rows_can_be_deleted_by_what_the_target_knows_them_by(target):
    target.claim(STATE)
    target.apply({ANN: {"id": 1}, BEN: {"id": 2}}, (), STATE, never)
    target.delete_identities([target.identity(ANN)], STATE.moved({0: 3}, 0))
    assert list(rows(target)) == [target.identity(BEN)] and target.state().positions[0] == 3


def test_a_reader_sees_rows_of_the_state_that_it_is_given(target):
    target.claim(STATE)
    target.apply({ANN: {"id": 1, "name": "Ann"}}, (), STATE.moved({0: 3}, 0), never)
    with target.reading() as state:
        assert state.positions[0] == 3 and len(list(target.rows())) == 1
    wanted = target.identity(ANN)
    state, found = target.read_together([wanted, b"nobody"])
    assert state.positions[0] == 3 and canonical(found[wanted]) == rows(target)[wanted]


def test_two_followers_of_one_target_do_not_share_a_position(spec, target):
    target.claim(STATE)
    other = opened(spec, "others")
    assert other.state() is None
    other.close()
