"""What the benchmarks stand on: turns in which one server runs, and librdkafka without Python objects."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from clients.waiting import wait_until
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.broker import running_broker

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def piece(monkeypatch):
    """Imports one of them as the benchmarks do, from beside them."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield lambda name: __import__(name)
    for name in ("turns", "rdkafka"):
        sys.modules.pop(name, None)


@pytest.fixture
def servers():
    children = {name: subprocess.Popen(["sleep", "600"]) for name in ("one", "other")}
    yield {name: child.pid for name, child in children.items()}
    for child in children.values():
        child.kill()
        child.wait()


def stopped(servers):
    return {name for name, pid in servers.items() if psutil.Process(pid).status() == psutil.STATUS_STOPPED}


def watching(servers, expected, turns):
    for _ in range(turns):
        wait_until(lambda: stopped(servers) == expected)  # a signal takes a moment
        yield
    return turns


def test_a_server_runs_in_its_own_turns_only_and_goes_on_at_the_end(piece, servers):
    works = {
        "one": watching(servers, {"other"}, 3),
        "other": watching(servers, {"one"}, 2),
        "without a server": watching(servers, {"one", "other"}, 2),
    }
    results = piece("turns").in_turns(works, servers)
    assert results == {"one": 3, "other": 2, "without a server": 2}
    wait_until(lambda: not stopped(servers))


def test_servers_go_on_when_a_turn_fails(piece, servers):
    def failing():
        yield
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        piece("turns").in_turns({"one": failing()}, servers)
    wait_until(lambda: not stopped(servers))


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path) as broker:
        yield broker


def bootstrap(broker):
    return f"127.0.0.1:{broker.port}"


def create(broker, topic, **config):
    admin = AdminClient({"bootstrap.servers": bootstrap(broker)})
    admin.create_topics([NewTopic(topic, 2, 1, config=config)])[topic].result(60)


def read_by_confluent_kafka(broker, topic, count):
    consumer = Consumer({"bootstrap.servers": bootstrap(broker), "group.id": "reader"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
    found = {0: [], 1: []}
    for message in consumer.consume(count, timeout=60):
        assert message.error() is None
        found[message.partition()].append(message.value())
    consumer.close()
    return found


def test_what_is_sent_in_bulk_is_there_in_order_and_is_read_in_bulk(piece, broker):
    rdkafka = piece("rdkafka")
    create(broker, "bulk")
    values = [b"%d" % number for number in range(500)]
    producer = rdkafka.BulkProducer({"bootstrap.servers": bootstrap(broker), "acks": "all"}, "bulk")
    producer.send(0, producer.prepare(values))
    producer.send(1, producer.prepare(values[:100]))
    assert (producer.flush(60), producer.refused) == (0, 0)
    producer.close()
    assert read_by_confluent_kafka(broker, "bulk", 600) == {0: values, 1: values[:100]}

    settings = {"bootstrap.servers": bootstrap(broker), "group.id": "bulk", "enable.auto.commit": False}
    consumer = rdkafka.BulkConsumer(settings, "bulk", 2, 10)
    assert 0 < consumer.read(1, 60) <= 580
    assert consumer.read(580, 60) == 580
    assert consumer.read(581, 0.2) == 580  # there is no more
    consumer.close()


def test_a_record_that_is_refused_is_counted(piece, broker):
    rdkafka = piece("rdkafka")
    create(broker, "small", **{"max.message.bytes": "200"})
    producer = rdkafka.BulkProducer(
        {"bootstrap.servers": bootstrap(broker), "delivery.report.only.error": True, "linger.ms": 0}, "small"
    )
    producer.send(0, producer.prepare([b"x" * 1000]))
    assert (producer.flush(60), producer.refused) == (0, 1)
    producer.close()


def test_a_setting_that_librdkafka_does_not_know_is_named(piece):
    rdkafka = piece("rdkafka")
    with pytest.raises(rdkafka.RdkafkaError, match=r"no\.such\.setting"):
        rdkafka.BulkProducer({"no.such.setting": 1}, "any")
