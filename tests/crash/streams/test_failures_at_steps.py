"""A failure at each named step of the sink and inside each store's commit; the query goes on.

These are no kills: an exception ends the query in the middle of a batch, the process
lives, and `Running` starts the query again. All of it is in the long form; in the default
run `test_kills` has some of these steps, and `tests/crash/views` every one inside a store.
"""

import json

import pytest
from stream_application import AROUND, INSIDE, VIEWS, application
from stream_campaign import TOPIC, Traffic, check, log_ends

from headrace import crash_points
from headrace.app.options import RunOptions
from headrace.app.run.runner import running
from headrace.app.verify.recompute import verify_view
from headrace.client import Connection
from headrace.testing.broker import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


class Failing:
    """Raises once at each of the steps, in their order, in a later batch each time."""

    def __init__(self, wanted):
        self.left = list(wanted)
        self._view = ""

    def on_step(self, step):
        self._view = step.removeprefix("view ") if step.startswith("view ") else ""
        self._reached(step)

    def in_store(self, step):
        if self._view:
            self._reached(f"{self._view}: {step}")

    def _reached(self, step):
        if self.left and step == self.left[0]:
            self.left.pop(0)
            raise OSError(f"made to fail at {step!r}")


def fail_at(spark, wanted, stores, tmp_path, seed):
    print("seed", seed)
    failing, traffic, told = Failing(wanted), Traffic(seed), []
    crash_points.watch(failing.in_store)
    with BrokerProcess(tmp_path / "log") as broker:
        log = Connection(bootstrap_servers=broker.bootstrap)
        options = RunOptions(
            data=tmp_path / "data",
            bootstrap=broker.bootstrap,
            max_restarts=len(wanted),
            max_records_per_batch=500,
        )
        with running(
            application(stores), options, on_message=told.append, on_step=failing.on_step
        ) as started:
            traffic.start()
            traffic.to(broker.bootstrap)
            while failing.left:
                assert not started.wait(0.1)
            traffic.end()
            ends, views = log_ends(log)[TOPIC], started.plan.streams[0].views
            while any(started.stores[name].reflected(name).offsets.get(TOPIC) != ends for name in VIEWS):
                assert not started.wait(0.1)
            verdicts = {}
            for number, view in enumerate(views):
                name = view.view.name
                if name in VIEWS:
                    found = verify_view(spark, started.plan.streams[0], number, started.stores[name], log)
                    verdicts[name] = {
                        "rows": found.rows,
                        "differences": found.differences,
                        "counters": dict(found.reflected.counters),
                    }
            print(json.dumps(check(log, verdicts, set(VIEWS))))
    assert sum("will be restarted" in each for each in told) == len(wanted)


def test_each_result_is_there_once_after_a_failure_at_each_step_of_the_sink(spark, stores, tmp_path):
    fail_at(spark, AROUND, stores, tmp_path, seed=1)


def test_each_result_is_there_once_after_failures_inside_the_commit_of_each_store(spark, stores, tmp_path):
    fail_at(spark, INSIDE, stores, tmp_path, seed=2)
