"""Clients on three brokers of a real Kafka, one of them away: nobody is missed, nearby replicas serve."""

import os
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client import EARLIEST, LATEST, Connection, RawFetcher
from headrace.client.connect.brokers import Brokers
from headrace.client.write import fence
from headrace.errors import RetriableError
from headrace.records import decode_columns
from headrace.testing.kafka import KafkaCluster, PeerUnavailable
from headrace.wire import Api

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]
IDS = 24


@pytest.fixture(scope="module")
def cluster():
    try:
        started = KafkaCluster()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    with started:
        yield started


@pytest.fixture
def fragile():
    """A cluster that keeps its transactions once: what a broker coordinates is nowhere else."""
    once = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    try:
        started = KafkaCluster(once)
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    with started:
        yield started


def connection(cluster, **fields):
    return Connection(bootstrap_servers=cluster.bootstrap, **fields)


def create(cluster, *, partitions=6):
    topic = f"t-{uuid.uuid4().hex[:12]}"
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    client.create_topics([NewTopic(topic, partitions)])[topic].result(60)
    return topic


def open_transactions(cluster, topic, prefix):
    """Producers with a record each in a transaction that is open."""
    found = []
    for number in range(IDS):
        settings = {"transactional.id": f"{prefix}{number:02}", "linger.ms": 0, "log_level": 0}
        producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=number % 6)
        assert producer.flush(60) == 0
        found.append(producer)
    return found


def coordinator_of(cluster, transactional_id):
    with closing(Brokers(connection(cluster), {Api.FIND_COORDINATOR: 4})) as brokers:
        asked = {"key_type": 1, "coordinator_keys": [transactional_id]}
        answer = brokers.ask(brokers.any(), Api.FIND_COORDINATOR, asked)
        return answer.coordinators[0].node_id


def test_whoever_coordinates_is_killed_and_every_producer_is_fenced_all_the_same(cluster):
    topic, prefix = create(cluster), f"{uuid.uuid4().hex}-"
    producers = open_transactions(cluster, topic, prefix)
    cluster.kill(coordinator_of(cluster, f"{prefix}00"))
    try:
        found = fence(connection(cluster, retry_timeout_ms=60_000), prefix)
        assert found == [f"{prefix}{number:02}" for number in range(IDS)]
        for each in producers:
            with pytest.raises(KafkaException, match="fenced"):
                each.commit_transaction(60)
    finally:
        for node in cluster.nodes:
            if not cluster.is_alive(node):
                cluster.restart(node)
    cluster.wait_in_sync()


def test_producers_that_nobody_can_list_are_not_taken_for_fenced(fragile):
    topic, prefix = create(fragile), f"{uuid.uuid4().hex}-"
    open_transactions(fragile, topic, prefix)
    away = coordinator_of(fragile, f"{prefix}00")
    fragile.kill(away)
    with pytest.raises(RetriableError, match="no leader"):
        fence(connection(fragile, retry_timeout_ms=20_000), prefix)
    fragile.restart(away)
    assert len(fence(connection(fragile, retry_timeout_ms=60_000), prefix)) == IDS


def written_bytes(pid):
    """What a process has written to files and sockets."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("wchar")).split()[1])


def read_everything(cluster, fetcher, topic):
    """The records' values, and how much each broker wrote meanwhile."""
    before = {node: written_bytes(cluster.pid(node)) for node in cluster.nodes if cluster.is_alive(node)}
    starts, ends = fetcher.offsets(topic, EARLIEST), fetcher.offsets(topic, LATEST)
    found = [
        value
        for each, start in starts.items()
        for run in fetcher.fetch(topic, each, start, ends[each])
        for value in decode_columns(run, start_offset=start)["value"].to_pylist()
    ]
    return sorted(found), {node: written_bytes(cluster.pid(node)) - count for node, count in before.items()}


def test_records_come_from_the_replica_of_the_own_rack_and_from_others_when_it_is_away(cluster):
    topic, total = create(cluster, partitions=3), 6_000_000
    values = sorted(os.urandom(2_000) for _ in range(total // 2_000))
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 3)
    assert producer.flush(60) == 0
    cluster.wait_in_sync()
    near = connection(cluster, client_rack="rack-2", retry_timeout_ms=60_000)
    with closing(RawFetcher(near)) as fetcher:
        found, served = read_everything(cluster, fetcher, topic)
        print("bytes written by brokers:", served)
        assert found == values and served[2] > total > 2 * (served[1] + served[3])
        cluster.kill(2)
        try:
            found, served = read_everything(cluster, fetcher, topic)
            print("bytes written by brokers:", served)
            assert found == values and sum(served.values()) > total
        finally:
            cluster.restart(2)
    cluster.wait_in_sync()
