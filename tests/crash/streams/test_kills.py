"""`kill -9` of the driver, of Python workers and of the broker, while records keep coming.

One application has a view in each store that outlives a process; so a kill at the step
"view NAME" is one at that store. At the end every view equals its recomputation, topics
hold each result once and the counters balance (`stream_campaign.check`).
"""

import random

import pytest
from stream_application import AROUND, INSIDE, VIEWS, WORKER_POINTS
from stream_campaign import Life, Traffic, check, log_ends, outlived

from headrace.crash_points import TASK_POINTS

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("stores")]

AT_RANDOM = ("driver", "worker", "broker")
AT_STEPS = (*AROUND, *INSIDE, *WORKER_POINTS, *(f"worker at {step}" for step in WORKER_POINTS))
PARTS = 8


def survive(tmp_path, stores, kills, seed, sinks="driver"):
    def begin():
        return Life(tmp_path / "data", stores, sinks=sinks)

    with outlived(begin, Traffic(seed), kills, seed) as (life, log):
        print(check(log, life.prove(log_ends(log)), set(VIEWS)))


@pytest.mark.timeout(1200)
def test_views_and_topics_are_whole_after_kills_of_a_worker_and_the_broker(stores, tmp_path):
    """In one life of the driver; `test_flow_kills.py` kills that, and the long forms do at every step."""
    survive(tmp_path, stores, ["worker at state renamed", "broker"], seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_views_and_topics_are_whole_where_tasks_write_and_are_killed_at_each_step_of_it(stores, tmp_path):
    """A task's worker alone, and together with the driver; and whatever else is killed."""
    workers = [f"worker at {step}" for step in TASK_POINTS]
    inside = (
        "overlapping: rows written",
        "overlapping: committed",
        "visits: ledger written",
        "visits: committed",
    )
    kills = [*workers, "broker", *(f"task: {step}" for step in TASK_POINTS), *inside, "worker", "driver"]
    survive(tmp_path, stores, kills, seed=3, sinks="executors")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_views_and_topics_are_whole_after_twenty_kills(stores, tmp_path):
    """Most in the first life of the driver; the long form has every step of every store."""
    workers = ["worker", *(f"worker at {step}" for step in WORKER_POINTS)]
    kills = [*workers, "broker"] * 3 + [*workers, "driver"]
    assert len(kills) == 20
    survive(tmp_path, stores, kills, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_views_and_topics_are_whole_after_two_hundred_kills(stores, tmp_path, part):
    """In parts of 25: first the part's share of the named steps, then whatever comes."""
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    kills = list(AT_STEPS[part::PARTS])
    weights = [30, 60, 60, *[2] * len(AT_STEPS)]
    kills += chance.choices([*AT_RANDOM, *AT_STEPS], weights, k=25 - len(kills))
    survive(tmp_path, stores, kills, seed)
