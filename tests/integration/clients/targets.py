"""The logs that the suite runs on: ours, and a real Kafka."""

import os
import signal
from abc import ABC, abstractmethod
from pathlib import Path

import pytest

from headrace.testing.broker import BrokerProcess
from headrace.testing.kafka import KafkaServer, PeerUnavailable

TARGETS = [
    pytest.param("headrace"),
    pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow]),
]

# Dead members are noticed in seconds, or the suite would mostly wait for them.
MIN_SESSION_TIMEOUT_MS = 1000
SERVER_SIDE_SESSION_TIMEOUT_MS = 12_000
SERVER_SIDE_HEARTBEAT_MS = 300


class Target(ABC):
    """A running log; its data and address outlive `restart` and `kill`."""

    bootstrap: str

    @abstractmethod
    def restart(self) -> None:
        """Stop in good order if it runs, and start again."""

    @abstractmethod
    def kill(self) -> None:
        """End it as `kill -9` does."""

    @abstractmethod
    def pause(self) -> None: ...

    @abstractmethod
    def resume(self) -> None: ...

    @abstractmethod
    def output(self) -> str:
        """What it has printed so far."""

    @abstractmethod
    def close(self) -> None: ...


class HeadraceTarget(Target):
    def __init__(self, data: Path, **settings: object) -> None:
        quick = {
            "group_initial_rebalance_delay_ms": 0,
            "group_min_session_timeout_ms": MIN_SESSION_TIMEOUT_MS,
            "group_consumer_session_timeout_ms": SERVER_SIDE_SESSION_TIMEOUT_MS,
            "group_consumer_heartbeat_interval_ms": SERVER_SIDE_HEARTBEAT_MS,
        }
        self._broker = BrokerProcess(data, **(quick | settings)).start()
        self.bootstrap = self._broker.bootstrap

    def restart(self) -> None:
        self._broker.restart()

    def kill(self) -> None:
        self._broker.kill()

    def pause(self) -> None:
        self._broker.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._broker.signal(signal.SIGCONT)

    def output(self) -> str:
        return self._broker.output()

    def close(self) -> None:
        self._broker.__exit__()


class KafkaTarget(Target):
    def __init__(self) -> None:
        self._server = KafkaServer(
            {
                "group.min.session.timeout.ms": str(MIN_SESSION_TIMEOUT_MS),
                "group.consumer.min.session.timeout.ms": str(MIN_SESSION_TIMEOUT_MS),
                "group.consumer.session.timeout.ms": str(SERVER_SIDE_SESSION_TIMEOUT_MS),
                "group.consumer.min.heartbeat.interval.ms": "100",
                "group.consumer.heartbeat.interval.ms": str(SERVER_SIDE_HEARTBEAT_MS),
                "offsets.topic.num.partitions": "4",
            },
            quick=True,
        )
        self.bootstrap = self._server.bootstrap

    def restart(self) -> None:
        self._server.restart()

    def kill(self) -> None:
        self._server.kill()

    def pause(self) -> None:
        os.kill(self._server.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._server.pid, signal.SIGCONT)

    def output(self) -> str:
        return self._server.log_file.read_text(errors="replace")

    def close(self) -> None:
        self._server.stop()


def open_target(name: str, data: Path) -> Target:
    """Start the named log; skips the test, with the reason, where Kafka cannot be had."""
    if name == "headrace":
        return HeadraceTarget(data)
    try:
        return KafkaTarget()
    except PeerUnavailable as error:
        pytest.skip(str(error))
