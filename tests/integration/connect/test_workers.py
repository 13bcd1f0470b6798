"""Kafka Connect on our broker as others run it: two workers with REST, from Maven's jars."""

import contextlib
import json

import pytest
from connect.lines import CommittedReader, LineWriter
from connect.sources import QUICK, TOPIC, assert_compacted, file_source, seeded

from headrace.testing.broker import BrokerProcess
from headrace.testing.connect import ConnectWorkers
from headrace.testing.kafka import PeerUnavailable

pytestmark = [pytest.mark.timeout(400), pytest.mark.kafka, pytest.mark.xdist_group("connect")]


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path / "log", group_min_session_timeout_ms=1000) as broker:
        yield broker


@pytest.fixture
def workers(broker):
    try:
        workers = ConnectWorkers(broker.bootstrap, count=2, properties=QUICK)
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    with workers:
        yield workers


@contextlib.contextmanager
def telling(broker, workers):
    """A wait that took too long says what Connect says of the connector, and the broker at all."""
    try:
        yield
    except TimeoutError as error:
        asked = next(worker for worker in workers if worker.is_alive())
        error.add_note(json.dumps(asked.ask("GET", "/connectors/lines/status"), indent=1))
        error.add_note(broker.output()[-4000:])
        raise


def owner_of_the_task(workers, asked):
    """The worker that runs the connector's task, by the word of `asked`."""
    found = []

    def it_runs():
        status = asked.ask("GET", "/connectors/lines/status")
        found[:] = [task["worker_id"] for task in status["tasks"] if task["state"] == "RUNNING"]
        return bool(found)

    asked.wait_until(it_runs)
    return next(worker for worker in workers if worker.url.endswith(found[0]))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_workers_take_over_from_each_other_five_times_and_every_line_arrives_once(broker, workers, tmp_path):
    take_turns(broker, workers, tmp_path, kills=5)


def take_turns(broker, workers, tmp_path, kills):
    chance = seeded()
    with (
        telling(broker, workers),
        LineWriter(tmp_path / "in.txt") as writer,
        contextlib.closing(CommittedReader(broker.bootstrap, TOPIC)) as reader,
    ):
        workers.put("lines", file_source(writer.path))
        assert_compacted(broker.bootstrap, "connect-configs", "connect-offsets", "connect-status")
        for kill in range(kills):
            reader.wait_for_new(writer, chance.randrange(200, 1000))
            owner = owner_of_the_task(workers, workers[0])
            other = next(worker for worker in workers if worker is not owner)
            killed, left = (owner, other) if kill % 2 == 0 else (other, owner)
            killed.kill()
            reader.wait_for_new(writer, 200)
            killed.start()
            killed.wait_ready()
            left.wait_ready()
        broker.kill()
        broker.start()
        reader.wait_for_new(writer, 200)
        written = writer.finish()
        reader.wait_for(len(written))
        reader.drain()
        print(f"{len(written)} lines")
        assert reader.lines == written
