"""The real command in a process of its own, against our broker and against a Kafka."""

import json
import subprocess
import uuid
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer, Producer
from ready_command import COMMAND, run_command

from headrace.testing.broker import BrokerProcess


@dataclass(frozen=True)
class Result:
    code: int
    out: bytes
    err: str

    def json(self):
        return json.loads(self.out)

    def lines(self):
        return [json.loads(line) for line in self.out.splitlines()]


class Headrace:
    """Runs `headrace …` with the bootstrap address set."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap

    def arguments(self, *arguments):
        return [*COMMAND, *arguments, "--bootstrap", self.bootstrap]

    def run(self, *arguments, stdin=b"", expect=0):
        done = run_command([*arguments, "--bootstrap", self.bootstrap], stdin)
        result = Result(done.returncode, done.stdout, done.stderr.decode())
        assert result.code == expect, f"exit code {result.code}\n{result.out.decode()}\n{result.err}"
        assert "Traceback" not in result.err
        return result

    def json(self, *arguments, **options):
        return self.run(*arguments, "--json", **options).json()

    def tail(self, *arguments, **options):
        return self.run("tail", *arguments, "--json", "--no-follow", **options).lines()

    def start(self, *arguments, **options):
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen(self.arguments(*arguments), **pipes)


@pytest.fixture(scope="session", params=["headrace", pytest.param("kafka", marks=pytest.mark.kafka)])
def bootstrap(request, tmp_path_factory):
    if request.param == "headrace":
        data = tmp_path_factory.mktemp("cli-broker")
        with BrokerProcess(data, group_initial_rebalance_delay_ms=0) as broker:
            yield broker.bootstrap
        return
    yield request.getfixturevalue("kafka_log").bootstrap_servers


@pytest.fixture
def command_on():
    """The command for a broker that a test runs itself."""
    return Headrace


@pytest.fixture
def headrace(bootstrap):
    return Headrace(bootstrap)


@pytest.fixture
def topic(headrace):
    """A new topic of two partitions that keeps records however old they say they are."""
    name = f"cli-{uuid.uuid4().hex[:8]}"
    headrace.run("topics", "create", name, "--partitions", "2", "--config", "retention.ms=-1")
    return name


@pytest.fixture
def produce(bootstrap):
    """Sends records by a plain client; returns when all are acknowledged."""

    def send(topic, *records):
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        for record in records:
            producer.produce(topic, **record)
        assert producer.flush(30) == 0

    return send


@pytest.fixture
def join(bootstrap):
    """Members of a group that own partitions; whatever is still open is closed at the end."""
    members = []

    def start(group, topic, **settings):
        member = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "client.id": "cli-test",
                **settings,
            }
        )
        members.append(member)
        member.subscribe([topic])
        return member

    yield start
    for member in members:
        member.close()
