"""`kill -9` of the driver, of Python workers and of the broker, while records keep coming.

One application has a view in each store that outlives a process; so a kill at the step
"view NAME" is one at that store. At the end every view equals its recomputation, topics
hold each result once and the books balance (`stream_campaign.check`).
"""

import random

import pytest
from stream_application import AROUND, INSIDE, VIEWS, WORKER_STEPS
from stream_campaign import Life, Traffic, check, kill, log_ends

from headrace.client import Connection

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("stores")]

AT_RANDOM = ("driver", "worker", "broker")
AT_STEPS = (*AROUND, *INSIDE, *WORKER_STEPS, *(f"worker at {step}" for step in WORKER_STEPS))
PARTS = 8


def survive(tmp_path, stores, kills, seed):
    """Lives of the driver one after the other, until all `kills` are done; the last proves everything.

    A kill is "driver", "worker" or "broker" (at a random moment), the name of a step at
    which the driver dies, or "worker at STEP". Whatever the driver outlives happens in one life.
    """
    print("seed", seed, "kills", kills)
    chance, traffic, waiting = random.Random(seed), Traffic(seed), list(kills)
    traffic.start()
    life = None
    try:
        while True:
            life = Life(tmp_path / "data", stores)
            told = life.wait_for("bootstrap")
            traffic.to(told["bootstrap"])
            if _is_outlived(life, told["broker"], waiting, chance):
                break
            traffic.away()
        traffic.end()
        log = Connection(bootstrap_servers=told["bootstrap"])
        verdicts = life.prove(log_ends(log))
        print(check(log, verdicts, set(VIEWS)))
        life.end()
    finally:
        if life is not None:
            life.kill()
        traffic.end()


def _is_outlived(life, broker, waiting, chance):
    """Takes kills off the list and does them; False as soon as the driver is dead."""
    life.wait_for("batch")
    while waiting:
        print(len(waiting), "kills to do", flush=True)
        match waiting.pop(0).split(" at "):
            case ["worker"]:
                while not kill(chance.choice(life.wait_workers())):
                    pass  # it had just ended by itself
            case ["worker", step]:
                life.kill_worker_at(step)
            case ["broker"]:
                broker = _kill_broker(life, broker)
            case ["driver"]:
                for _ in range(chance.randrange(3)):
                    life.wait_for("batch")
                life.die()
                return False
            case [step]:
                life.die_at(step, after=chance.randrange(3))
                return False
        life.wait_batch()
    return True


def _kill_broker(life, broker):
    """The number of its successor."""
    assert kill(broker)
    while "the log had died" not in (said := life.wait_for("message")["message"]):
        pass
    return int(said.rpartition("process ")[2].rstrip(")"))


@pytest.mark.timeout(1200)
def test_views_and_topics_are_whole_after_kills_of_workers_the_broker_and_the_driver(stores, tmp_path):
    """One of each, the worker's at one of its steps; the long forms have every step."""
    survive(tmp_path, stores, ["worker at state renamed", "broker", "driver"], seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_views_and_topics_are_whole_after_twenty_kills(stores, tmp_path):
    """Most in the first life of the driver; the long form has every step of every store."""
    workers = ["worker", *(f"worker at {step}" for step in WORKER_STEPS)]
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
