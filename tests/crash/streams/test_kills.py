"""`kill -9` of the driver, of Python workers and of the broker, while records keep coming.

One application has a view in each store that outlives a process; so a kill at the step
"view NAME" is one at that store. At the end every view equals its recomputation, topics
hold each result once and the books balance (`stream_campaign.check`).
"""

import random

import pytest
from stream_application import VIEWS
from stream_campaign import Life, Traffic, check, kill, log_ends

from headrace.client import Connection

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("stores")]

STEPS = (*(f"view {name}" for name in VIEWS), "records", "progress", "done")
INSIDE = tuple(
    f"{name}: {step}" for name in VIEWS for step in ("begun", "rows written", "ledger written", "committed")
)


def survive(tmp_path, stores, kills, seed):
    """Lives one after the other, each ended as `kills` says; then one that proves everything.

    A kill is the name of a step at which the driver dies, "driver" (at a random
    moment), "worker" or "broker".
    """
    print("seed", seed, "kills", kills)
    chance, traffic, waiting = random.Random(seed), Traffic(seed), list(kills)
    traffic.start()
    order = {"data": str(tmp_path / "data"), "stores": stores}
    life = None
    try:
        while True:
            print(f"{len(kills) - len(waiting)} kills done", flush=True)
            at_step = waiting.pop(0) if waiting and waiting[0] not in ("driver", "worker", "broker") else None
            life = Life({**order, "step": at_step, "after": chance.randrange(1, 4)})
            told = life.wait_for("bootstrap")
            traffic.to(told["bootstrap"])
            if at_step is not None:
                life.wait_killed()
                traffic.away()
                continue
            if not _survive_within(life, told, waiting, chance, traffic):
                continue
            traffic.end()
            log = Connection(bootstrap_servers=told["bootstrap"])
            verdicts = life.prove(log_ends(log))
            print(check(log, verdicts, set(VIEWS)))
            return life.end()
    finally:
        if life is not None:
            life.kill()
        traffic.end()


def _survive_within(life, told, waiting, chance, traffic):
    """Kills of workers and the broker, which the driver outlives; False when it was killed itself."""
    broker = told["broker"]
    life.wait_for("batch")
    while waiting and waiting[0] in ("driver", "worker", "broker"):
        what = waiting.pop(0)
        if what == "driver":
            for _ in range(chance.randrange(3)):
                life.wait_for("batch")
            return _end(life, traffic)
        if what == "worker":
            kill(chance.choice(life.wait_workers()))
        else:
            assert kill(broker)
            while "the log had died" not in (said := life.wait_for("message")["message"]):
                pass
            broker = int(said.rpartition("process ")[2].rstrip(")"))
        life.wait_for("batch")
    return not waiting or _end(life, traffic)  # a kill at a step needs a life of its own


def _end(life, traffic):
    """Kills the driver; False."""
    kill(life.pid)
    life.wait_killed()
    traffic.away()
    return False


@pytest.mark.timeout(1200)
def test_views_and_topics_are_whole_after_kills_of_a_worker_the_broker_and_the_driver(stores, tmp_path):
    """One of each; the long form has every step of every store."""
    survive(tmp_path, stores, ["worker", "broker", "driver"], seed=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(8))
def test_views_and_topics_are_whole_after_two_hundred_kills(stores, tmp_path, part):
    """First each step around and inside the commit of each store, then whatever comes; in parts of 25."""
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    steps = [*STEPS, *INSIDE]
    kills = steps if part == 0 else []
    kills = [
        *kills,
        *chance.choices(["driver", "worker", "broker", *steps], [30, 60, 60, *[2] * 23], k=25 - len(kills)),
    ]
    survive(tmp_path, stores, kills, seed)
