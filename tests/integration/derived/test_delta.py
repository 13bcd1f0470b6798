"""Delta tables as others see them: DuckDB reads the log of commits and the files that it names."""

import random
import shutil
import uuid
from pathlib import Path

import deltalake
import duckdb
import orjson
import pytest
from tests.contract.derived_targets import opened
from tests.integration.derived.conftest import (
    create_topic,
    following,
    has_all,
    last_of_each,
    send,
    wait_until,
)

from headrace import crash_points
from headrace.client import Connection
from headrace.derived import Follow, delta, verify_follow
from headrace.derived.state import FollowState
from headrace.derived.targets import delta as delta_target
from headrace.errors import ConfigError, FencedError

STATE = FollowState(topic="t", topic_id="i", owner="one")


def never(key, why):
    raise AssertionError(f"{key!r}: {why}")


@pytest.fixture
def lake(tmp_path):
    return tmp_path / "lake"


@pytest.fixture
def target(lake):
    made = opened(delta(str(lake), every_s=0))
    yield made
    made.close()


def actions(lake: Path, version: int) -> list[dict]:
    text = (lake / "_delta_log" / f"{version:020}.json").read_bytes()
    return [orjson.loads(line) for line in text.splitlines()]


def versions(lake: Path) -> list[int]:
    return sorted(int(each.stem) for each in (lake / "_delta_log").glob("*.json"))


def table_at(lake: Path, version: int) -> tuple[list[dict], FollowState | None]:
    """The rows of a version, by the protocol's definition, and the position among its commits."""
    files, said = set(), None
    for number in range(version + 1):
        for action in actions(lake, number):
            files |= {action["add"]["path"]} if "add" in action else set()
            files -= {action["remove"]["path"]} if "remove" in action else set()
            said = action.get("commitInfo", {}).get("headrace.follower.customers", said)
    paths = [str(lake / each) for each in sorted(files)]
    if not paths:
        return [], said
    relation = duckdb.read_parquet(paths, union_by_name=True)
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()], said


def test_every_version_that_others_read_is_a_state_of_the_topic_at_its_position(bootstrap, lake):
    topic, chance = f"delta-{uuid.uuid4()}", random.Random(5)
    create_topic(bootstrap, topic, partitions=1)
    follow = Follow(name="customers", topic=topic, into=delta(str(lake), every_s=0))
    sent = []

    def change(run):
        ids = chance.choices(range(9), k=7)
        rows = [(b"%d" % each, {"id": each, "n": chance.random()}) for each in ids]
        sent.extend((key, None if chance.random() < 0.3 else row) for key, row in rows)
        send(bootstrap, topic, sent[-7:])
        wait_until(lambda: run.status.positions == {"0": len(sent)} and has_all(run))

    with following(bootstrap, follow) as run:
        for _ in range(5):
            change(run)
    seen = set()
    for version in versions(lake):
        rows, said = table_at(lake, version)
        position = orjson.loads(said)["positions"].get("0", 0) if said else 0
        must = last_of_each(sent[:position])
        assert {row["_key"]: (row["id"], row["n"]) for row in rows} == {
            key: (row["id"], row["n"]) for key, row in must.items()
        }, (version, position)
        seen.add(position)
    assert len(sent) in seen and len(seen) >= 5


def test_columns_have_types_that_others_know(lake, target):
    target.claim(STATE)
    row = {"whole": 2**60, "real": 0.5, "yes": True, "text": "é", "list": [1], "a b": 1, "mixed": 1}
    target.apply({b"1": row}, (), STATE, never)
    target.apply({b"2": {"mixed": 0.5, "whole": 0.5}}, (), STATE, never)
    found, _ = table_at(lake, versions(lake)[-1])
    first = next(each for each in found if each["_key"] == b"1")
    assert first == {
        "_key": b"1", "whole": str(2**60), "real": 0.5, "yes": True, "text": "é", "list": "[1]",
        "a%20b": 1, "mixed": 1.0,
    }  # fmt: skip
    assert deltalake.DeltaTable(lake).to_pyarrow_table().num_rows == 2


def test_a_follower_that_is_overtaken_between_reading_and_writing_writes_nothing(lake, target):
    target.claim(STATE)
    other = opened(delta(str(lake), every_s=0))

    def overtaken(point):
        if point == "rows written":
            crash_points._watchers.clear()
            other.claim(FollowState(topic="t", topic_id="i", owner="two"))

    crash_points.watch(overtaken)
    try:
        with pytest.raises(FencedError):
            target.apply({b"1": {"id": 1}}, (), STATE, never)
    finally:
        crash_points._watchers.clear()
    assert other.is_empty() and other.state().owner == "two"


def test_what_others_do_to_the_table_leaves_the_position(lake, target):
    target.claim(STATE)
    for number in range(3):
        target.apply({b"%d" % number: {"id": number}}, (), STATE.moved({0: number}, 0), never)
    theirs = deltalake.DeltaTable(lake)
    theirs.optimize.compact()
    theirs.create_checkpoint()
    assert target.state().positions == {0: 2} and len(list(target.rows())) == 3
    target.apply({b"7": {"id": 7}}, [b"0"], STATE.moved({0: 9}, 0), never)
    assert {key for key, _ in target.rows()} == {b"1", b"2", b"7"}


def test_small_files_are_put_together_now_and_then(lake, target, monkeypatch):
    monkeypatch.setattr(delta_target, "_TIDY_COMMITS", 5)
    target.claim(STATE)
    for number in range(5):
        target.apply({b"%d" % number: {"id": number}}, (), STATE.moved({0: number}, 0), never)
    assert len(deltalake.DeltaTable(lake).file_uris()) == 1
    assert target.state().positions == {0: 4} and len(list(target.rows())) == 5


def test_a_table_that_is_removed_is_built_again(bootstrap, lake):
    topic, messages = f"delta-{uuid.uuid4()}", []
    create_topic(bootstrap, topic)
    send(bootstrap, topic, [(b"1", {"id": 1}), (b"2", {"id": 2})])
    follow = Follow(name=topic, topic=topic, into=delta(str(lake), every_s=0))
    with following(bootstrap, follow, on_message=messages.append) as run:
        wait_until(lambda: has_all(run))
        shutil.rmtree(lake)
        send(bootstrap, topic, [(b"3", {"id": 3})])
        wait_until(lambda: any("built from the log again" in each for each in messages))
        wait_until(lambda: has_all(run) and run.status.upserts >= 5)
    assert verify_follow(follow, Connection(bootstrap_servers=bootstrap)).is_equal


def test_commits_are_no_closer_together_than_was_asked_for(bootstrap, lake):
    topic = f"delta-{uuid.uuid4()}"
    create_topic(bootstrap, topic, partitions=1)
    send(bootstrap, topic, [(b"1", {"id": 1})])
    follow = Follow(name="customers", topic=topic, into=delta(str(lake), every_s=3600))
    with following(bootstrap, follow) as run:
        wait_until(lambda: run.status.positions == {"0": 1} and run.status.state == "following")
        send(bootstrap, topic, [(b"2", {"id": 2})])
        wait_until(lambda: run.status.behind == 1)
        assert run.status.positions == {"0": 1} and run.status.seconds_behind is None
    with following(bootstrap, follow) as run:
        wait_until(lambda: run.status.positions == {"0": 2})


def test_a_table_of_somebody_else_is_left_alone(lake):
    import pyarrow as pa

    deltalake.write_deltalake(lake, pa.table({"id": [1]}))
    with pytest.raises(ConfigError, match="name another folder"):
        opened(delta(str(lake))).state()
