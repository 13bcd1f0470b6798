"""Topics in memory, as clients see them."""

import json

import pytest
from broker.conftest import Peer, batch_of
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource
from ready_command import run_command

from headrace.testing.broker import BrokerProcess, running_broker
from headrace.testing.disk import SimulatedDisk

MEMORY = {"headrace.storage": "memory"}


@pytest.fixture
def peers():
    opened = []

    def connect(broker):
        opened.append(Peer(broker.port))
        return opened[-1]

    yield connect
    for peer in opened:
        peer.close()


def test_records_go_in_and_out_without_touching_the_disk(tmp_path, peers):
    disk = SimulatedDisk()
    with running_broker(tmp_path, disk=disk) as broker:
        peer = peers(broker)
        peer.create("fast", **MEMORY)
        steps = disk.steps
        for number in range(50):
            assert peer.produce("fast", batch_of(b"%d" % number)).base_offset == number
        assert len(peer.fetch("fast", 0, wait_ms=1000).records) > 50 * 61
        assert disk.steps == steps


def test_memory_stays_within_the_bound(tmp_path, peers):
    with running_broker(tmp_path) as broker:
        peer = peers(broker)
        peer.create("ring", **MEMORY, **{"retention.bytes": 100_000})
        for _ in range(200):
            assert peer.produce("ring", batch_of(b"x" * 5000)).error_code == 0
        log = broker.services.topics.partition("ring", 0).log
        assert 50_000 < log.size_bytes <= 100_000
        assert peer.fetch("ring", 0).error_code == 1
        assert peer.fetch("ring", log.start_offset).error_code == 0


def consume(process, group, count):
    consumer = Consumer(
        {
            "bootstrap.servers": process.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["fast"])
    found = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None and message.error() is None, message and message.error()
        found.append((message.offset(), message.value()))
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def produce(process, *values):
    producer = Producer({"bootstrap.servers": process.bootstrap})
    for value in values:
        producer.produce("fast", value)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("killed", [False, True])
def test_after_a_restart_the_topic_is_empty_and_committed_offsets_name_no_other_record(
    tmp_path, killed, peers
):
    with BrokerProcess(tmp_path) as process:
        peers(process).create("fast", **MEMORY)
        produce(process, b"1", b"2", b"3")
        assert consume(process, "readers", 3) == [(0, b"1"), (1, b"2"), (2, b"3")]
        if killed:
            process.kill()
        process.restart()
        produce(process, b"4")
        ((offset, value),) = consume(process, "readers", 1)
        assert value == b"4"
        assert offset == 1_000_000 if killed else offset == 3


def run_cli(process, *args):
    done = run_command([*args, "-b", process.bootstrap])
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_every_listing_says_so(tmp_path, peers):
    with BrokerProcess(tmp_path) as process:
        peers(process).create("fast", **MEMORY)
        peers(process).create("slow")
        listed = json.loads(run_cli(process, "topics", "list", "--json"))["topics"]
        assert {row["topic"]: row["storage"] for row in listed} == {"fast": "memory", "slow": "disk"}
        assert "memory" in run_cli(process, "topics", "list")
        assert "in memory: gone when the broker stops" in run_cli(process, "topics", "describe", "fast")
        assert "in memory" not in run_cli(process, "topics", "describe", "slow")
        resource = ConfigResource(ConfigResource.Type.TOPIC, "fast")
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        configs = admin.describe_configs([resource])[resource].result(timeout=30)
        assert configs["headrace.storage"].value == "memory"
