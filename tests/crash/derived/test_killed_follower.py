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


def killed_at(bootstrap: str, follow: Follow, point: str, times: int) -> int:
    """Runs the follower until it comes to the point, or has everything; its exit code."""
    command = [
        sys.executable,
        str(FOLLOWING),
        bootstrap,
        orjson.dumps(follow.to_json()).decode(),
        point,
        str(times),
    ]
    return subprocess.run(command, timeout=200, check=False).returncode


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
