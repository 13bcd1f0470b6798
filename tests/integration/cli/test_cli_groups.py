"""`headrace groups` against real brokers."""

import time
import uuid

import pytest


@pytest.fixture
def group():
    return f"group-{uuid.uuid4().hex[:8]}"


def read_and_commit(join, group, topic, count, **settings):
    """A member that has processed `count` records; still a member."""
    member = join(group, topic, **settings)
    for _ in range(count):
        wait_for(lambda: (message := member.poll(0.2)) is not None and message.error() is None)
    member.commit(asynchronous=False)
    return member


def wait_for(condition, timeout_s=90):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
    raise AssertionError("the condition was not met in time")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_description_shows_members_assignments_and_lag(headrace, topic, group, produce, join, protocol):
    now_ms = time.time_ns() // 1_000_000
    produce(topic, *({"value": b"v", "partition": 0, "timestamp": now_ms - 100_000} for _ in range(3)))
    member = read_and_commit(join, group, topic, 3, **{"group.protocol": protocol})
    produce(topic, *({"value": b"v", "partition": 0, "timestamp": now_ms - 90_000} for _ in range(2)))
    described = headrace.json("groups", "describe", group)
    assert (described["state"], described["type"]) == ("Stable", protocol)
    (shown,) = described["members"]
    assert shown["client_id"] == "cli-test"
    assert shown["partitions"] == [{"topic": topic, "partition": index} for index in (0, 1)]
    zero, one = described["partitions"]
    assert (zero["committed"], zero["log_end"], zero["lag_records"]) == (3, 5, 2)
    assert 90 <= zero["lag_seconds"] < 390
    assert zero["member_id"] == one["member_id"] == shown["member_id"]
    assert (one["committed"], one["lag_records"], one["lag_seconds"]) in [(None, None, None), (0, 0, 0.0)]
    assert (described["lag_records"], described["lag_seconds"]) == (2, zero["lag_seconds"])
    listed = {row["group"]: row for row in headrace.json("groups", "list")["groups"]}
    assert listed[group] == {"group": group, "state": "Stable", "type": protocol}
    member.close()


def test_a_group_that_read_everything_has_no_lag(headrace, topic, group, produce, join):
    produce(topic, {"value": b"v", "partition": 0})
    read_and_commit(join, group, topic, 1).close()
    described = headrace.json("groups", "describe", group)
    assert (described["state"], described["members"]) == ("Empty", [])
    assert (described["lag_records"], described["lag_seconds"]) == (0, 0.0)


def test_a_group_that_fell_off_the_log_is_told_so(headrace, topic, group, produce, join):
    produce(topic, *({"value": b"v", "partition": 0} for _ in range(6)))
    read_and_commit(join, group, topic, 6).close()
    headrace.run("groups", "reset", group, "--topic", f"{topic}:0", "--to-offset", "1", "--execute")
    headrace.run("topics", "delete-records", f"{topic}:0", "--before", "4", "--yes")
    (zero,) = [
        each for each in headrace.json("groups", "describe", group)["partitions"] if each["partition"] == 0
    ]
    assert (zero["committed"], zero["log_start"], zero["lost_records"]) == (1, 4, 3)
    assert "3 records were deleted before" in headrace.run("groups", "describe", group).out.decode()


def committed(headrace, group, partition=0):
    rows = headrace.json("groups", "describe", group)["partitions"]
    return {each["partition"]: each["committed"] for each in rows}[partition]


def test_a_reset_is_only_a_plan_until_executed(headrace, topic, group, produce, join):
    produce(topic, *({"value": b"v", "partition": 0} for _ in range(5)))
    read_and_commit(join, group, topic, 5).close()
    plan = headrace.json("groups", "reset", group, "--topic", f"{topic}:0", "--to-offset", "2")
    assert plan["executed"] is False
    assert plan["partitions"] == [
        {
            "topic": topic,
            "partition": 0,
            "committed": 5,
            "target": 2,
            "replayed_records": 3,
            "log_start": 0,
            "log_end": 5,
            "clamped": False,
        }
    ]
    assert committed(headrace, group) == 5
    assert headrace.json("groups", "reset", group, "-t", f"{topic}:0", "--to-offset", "2", "--execute")[
        "executed"
    ]
    assert committed(headrace, group) == 2


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 6),
        (("--shift-by", "-4"), 2),
        (("--shift-by", "-400"), 0),
        (("--to-time", "@3000"), 3),
        (("--to-time", "1970-01-01T00:00:03.500Z"), 4),
        (("--to-time", "-1s"), 6),
    ],
)
def test_a_reset_by_time_bound_or_shift(headrace, topic, group, produce, join, target, expected):
    records = [{"value": b"v", "partition": 0, "timestamp": 1000 * each} for each in range(1, 6)]
    produce(topic, {"value": b"v", "partition": 0, "timestamp": 1}, *records)
    read_and_commit(join, group, topic, 6).close()
    headrace.run("groups", "reset", group, "-t", f"{topic}:0", *target, "--execute")
    assert committed(headrace, group) == expected


def test_a_group_in_use_is_not_reset_and_the_reason_is_given(headrace, topic, group, produce, join):
    produce(topic, {"value": b"v", "partition": 0})
    member = read_and_commit(join, group, topic, 1)
    for mode in ("--execute", "--dry-run"):
        refused = headrace.run("groups", "reset", group, "--to-earliest", mode, expect=1)
        assert "is in use (state Stable, 1 member)" in refused.err
        assert "stop its consumers" in refused.err
    member.close()
    assert committed(headrace, group) == 1


def test_offsets_can_be_set_for_a_group_before_its_first_consumer(headrace, topic, group, produce):
    produce(topic, *({"value": b"v", "partition": 0} for _ in range(3)))
    headrace.run("groups", "reset", group, "--topic", topic, "--to-latest", "--execute")
    assert committed(headrace, group) == 3


def test_a_reset_needs_one_target_and_something_to_reset(headrace, group):
    assert "exactly one" in headrace.run("groups", "reset", group, expect=2).err
    assert "--topic" in headrace.run("groups", "reset", group, "--to-latest", expect=2).err


def test_a_group_is_deleted_once_it_is_empty(headrace, topic, group, produce, join):
    produce(topic, {"value": b"v", "partition": 0})
    member = read_and_commit(join, group, topic, 1)
    assert "stop its consumers" in headrace.run("groups", "delete", group, "--yes", expect=1).err
    member.close()
    assert headrace.json("groups", "delete", group, "--yes") == {"group": group, "deleted": True}
    assert "does not exist" in headrace.run("groups", "describe", group, expect=1).err
