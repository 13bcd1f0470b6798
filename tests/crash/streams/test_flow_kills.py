"""`kill -9` of the driver, of Python workers and of the broker, under views over several topics.

One view for each operator: a join of streams, a stream with a table as of its time, a join of
tables, a group over it, and windows over a join; in each store that outlives a process. At the
end every view equals its batch definition over the log, each input's counters balance, and late
and dead records are on their topics once (`flow_campaign.check_flows`).
"""

import random

import pytest
from flow_application import AROUND, INSIDE, TOPICS, VIEWS, WORKER_POINTS
from flow_campaign import FlowTraffic, check_flows
from stream_campaign import Life, log_ends, outlived

from headrace.crash_points import TASK_POINTS

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("stores")]

AT_RANDOM = ("driver", "worker", "broker")
AT_STEPS = (*AROUND, *INSIDE, *WORKER_POINTS, *(f"worker at {step}" for step in WORKER_POINTS))
PARTS = 8


def survive(tmp_path, stores, kills, seed, sinks="driver"):
    def begin():
        return Life(tmp_path / "data", stores, "flow_application", sinks=sinks)

    with outlived(begin, FlowTraffic(seed), kills, seed) as (life, log):
        print(check_flows(log, life.prove(log_ends(log, TOPICS)), set(VIEWS)))


@pytest.mark.timeout(1200)
def test_views_of_joins_and_tables_are_whole_after_kills_of_a_worker_and_the_driver(stores, tmp_path):
    """The worker's at one of its steps; the long form has every step, and the broker."""
    survive(tmp_path, stores, ["worker at state renamed", "driver"], seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_views_of_joins_and_tables_are_whole_where_tasks_write_and_are_killed_at_each_step_of_it(
    stores, tmp_path
):
    """A task's worker alone, and together with the driver; and the commits of what tasks have brought."""
    workers = [f"worker at {step}" for step in TASK_POINTS]
    inside = ("priced: rows written", "priced: committed", "owned: ledger written", "owned: committed")
    kills = [*workers, "broker", *(f"task: {step}" for step in TASK_POINTS), *inside, "worker", "driver"]
    survive(tmp_path, stores, kills, seed=3, sinks="executors")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_views_of_joins_and_tables_are_whole_after_a_hundred_kills(stores, tmp_path, part):
    """In parts: first the part's share of the named steps, then whatever comes."""
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    kills = list(AT_STEPS[part::PARTS])
    weights = [30, 60, 60, *[2] * len(AT_STEPS)]
    kills += chance.choices([*AT_RANDOM, *AT_STEPS], weights, k=13 - len(kills))
    survive(tmp_path, stores, kills, seed)
