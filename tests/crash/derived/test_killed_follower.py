"""A follower that is killed at any point, and started again, has every row as the log has it."""

import random
import subprocess
import sys
import uuid
from pathlib import Path

import orjson
import pytest
from tests.contract.derived_targets import TARGETS
from tests.integration.derived.conftest import create_topic, last_of_each, send

from headrace.client import Connection
from headrace.derived import Follow, open_target, verify_follow

POINTS = ("begun", "rows written", "ledger written", "committed")
FOLLOWING = Path(__file__).with_name("following.py")


def changes(numbers: random.Random, count: int) -> list:
    made = []
    for number in range(count):
        row = {"id": number, "name": "x" * numbers.randrange(50)}
        made.append((b'{"id":%d}' % numbers.randrange(60), None if numbers.random() < 0.3 else row))
    return made


def started(bootstrap: str, follow: Follow, point: str, times: int) -> subprocess.Popen:
    """Runs the follower until it comes to the point, or has everything."""
    said = orjson.dumps(follow.to_json()).decode()
    return subprocess.Popen([sys.executable, str(FOLLOWING), bootstrap, said, point, str(times)])


def killed_at(bootstrap: str, follow: Follow, point: str, times: int) -> int:
    """The exit code of such a run."""
    return started(bootstrap, follow, point, times).wait(200)


def run_and_kill(bootstrap: str, into, points: list[tuple[str, int]], seed: int) -> None:
    numbers, topic = random.Random(seed), f"killed-{uuid.uuid4()}"
    create_topic(bootstrap, topic)
    follow, sent, codes = Follow(name=topic, topic=topic, into=into), [], []
    for point, times in points:
        sent += (more := changes(numbers, 200))
        send(bootstrap, topic, more)
        codes.append(killed_at(bootstrap, follow, point, times))
        state = _state(follow)
        if state is not None and not state.is_building:
            assert verify_follow(follow, Connection(bootstrap_servers=bootstrap)).is_equal, (point, times)
    assert killed_at(bootstrap, follow, "never", 1) == 0
    found = verify_follow(follow, Connection(bootstrap_servers=bootstrap))
    assert found.is_equal and found.rows == len(last_of_each(sent)) and 9 in codes


def _state(follow: Follow):
    target = open_target(follow)
    try:
        return target.state()
    finally:
        target.close()


def test_a_follower_that_is_killed_has_each_change_once(our_log, request, tmp_path):
    into = TARGETS["redis"](request, tmp_path)
    run_and_kill(our_log.bootstrap_servers, into, [("rows written", 1), ("committed", 1)], seed=7)


@pytest.mark.slow
@pytest.mark.parametrize("kind", TARGETS)
def test_a_follower_that_is_killed_often_has_each_change_once(kind, our_log, request, tmp_path):
    into, numbers = TARGETS[kind](request, tmp_path), random.Random(kind)
    points = [(numbers.choice(POINTS), numbers.randint(1, 3)) for _ in range(12)]
    run_and_kill(our_log.bootstrap_servers, into, points, seed=11)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [2, 6])
def test_all_derived_systems_of_a_topic_are_equal_however_often_their_followers_are_killed(
    rounds, our_log, request, tmp_path
):
    """All of them follow at once while the topic is written to."""
    bootstrap, numbers, topic, sent = our_log.bootstrap_servers, random.Random(5), f"all-{uuid.uuid4()}", []
    create_topic(bootstrap, topic)
    follows = [
        Follow(name=f"{topic}-{number}", topic=topic, into=make(request, tmp_path))
        for number, (kind, make) in enumerate(TARGETS.items())
        if kind != "opensearch"
    ]
    codes = []
    for _ in range(rounds):
        sent += (more := changes(numbers, 200))
        send(bootstrap, topic, more)
        runs = [started(bootstrap, each, numbers.choice(POINTS), numbers.randint(1, 3)) for each in follows]
        for _ in range(4):
            sent += (more := changes(numbers, 20))
            send(bootstrap, topic, more)
        codes += [each.wait(300) for each in runs]
    assert [each.wait(300) for each in [started(bootstrap, each, "never", 1) for each in follows]] == [
        0 for _ in follows
    ]
    verified = [verify_follow(each, Connection(bootstrap_servers=bootstrap)) for each in follows]
    assert all(each.is_equal for each in verified), [str(each.differences[:3]) for each in verified]
    assert {each.rows for each in verified} == {len(last_of_each(sent))} and codes.count(9) > len(
        follows
    ) * rounds // 6
