"""Whatever is written to a target, in whatever transactions: it has the newest row of each key."""

import tempfile
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples

from headrace.derived import Follow, delta, open_target, search, table
from headrace.derived.changes import canonical
from headrace.derived.state import FollowState
from headrace.derived.targets.redis import key_text

STATE = FollowState(topic="t", topic_id="i", owner="one")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)
)
ROWS = st.dictionaries(st.sampled_from(["id", "name", "city", "a b", 'q"', "é"]), VALUES, min_size=1).map(
    lambda row: {**row, "there": 1}
)
KEYS = st.one_of(st.binary(max_size=6), st.integers(0, 5).map(lambda number: b'{"id":%d}' % number))
BATCHES = st.lists(st.dictionaries(KEYS, st.none() | ROWS, max_size=6), max_size=6)


def check(target, batches):
    model = {}
    target.claim(STATE)
    for number, batch in enumerate(batches):
        upserts = {key: row for key, row in batch.items() if row is not None}
        deletes = [key for key, row in batch.items() if row is None]
        target.apply(upserts, deletes, STATE.moved({0: number}, 0), refused)
        for key in deletes:
            model.pop(key, None)
        model |= upserts
    must = {target.identity(key): canonical(target.stored(row)) for key, row in model.items()}
    assert {key: canonical(row) for key, row in target.rows()} == must
    target.close()


def refused(key, why):
    raise AssertionError(f"{key!r}: {why}")


@settings(max_examples=examples(8), deadline=None)
@given(batches=BATCHES)
@pytest.mark.parametrize("kind", ["table", "search", "delta"])
def test_files(kind, batches):
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'x.db'}"
        into = {
            "table": table(url, "rows"),
            "search": search(url, "rows", fields=["name", "city"]),
            "delta": delta(f"{folder}/lake", every_s=0),
        }
        check(open_target(Follow(name="f", topic="t", into=into[kind])), batches)


@settings(max_examples=examples(8), deadline=None)
@given(batches=BATCHES, values=st.sampled_from(["json", "hash"]))
def test_a_cache(redis, batches, values):
    connection = redis.connect(199)
    connection.call("FLUSHDB")
    from headrace.derived import redis as cache

    check(
        open_target(Follow(name="f", topic="t", into=cache(redis.url(199), prefix="p:", values=values))),
        batches,
    )
    connection.close()


@given(
    st.lists(st.one_of(st.none(), st.booleans(), st.integers(-9, 99), TEXT), min_size=2, max_size=2),
    st.data(),
)
def test_different_keys_of_a_table_have_different_texts(values, data):
    other = data.draw(st.permutations(values) | st.tuples(TEXT, TEXT).map(list))
    first, second = (orjson.dumps(dict(zip("ab", each, strict=True))) for each in (values, other))
    assert (key_text(first) == key_text(second)) == (first == second)
    alone = [orjson.dumps({"a": each}) for each in (values[0], str(values[0]), other[1])]
    assert len({key_text(each) for each in alone}) == len(set(alone))
