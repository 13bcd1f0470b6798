"""A real Kafka can be fetched, run, killed and restarted, and leaves nothing behind."""

import shutil
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from headrace.errors import ConfigError
from headrace.testing.kafka import KAFKA_VERSION, KafkaServer, PeerUnavailable, fetch_kafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def jars():
    try:
        return fetch_kafka()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def kafka(jars):
    with KafkaServer({"message.max.bytes": "20000000"}, quick=True) as server:
        yield server


def produce(server, topic, values):
    failures = []
    producer = Producer({"bootstrap.servers": server.bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(30) == 0
    assert failures == []


def consume(server, topic, count):
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": str(uuid.uuid4())})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, timeout=120)]
    finally:
        consumer.close()


def test_a_client_reads_back_what_it_wrote(kafka):
    values = [b"%d" % i for i in range(100)]
    produce(kafka, "written", values)
    assert consume(kafka, "written", 100) == values


def test_settings_reach_the_server(kafka):
    broker = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    found = admin.describe_configs([broker])[broker].result(30)
    assert found["message.max.bytes"].value == "20000000"


def test_it_tells_its_memory_and_its_start_time(kafka):
    assert kafka.is_alive()
    assert kafka.rss_bytes() > 50_000_000  # a JVM with Kafka in it cannot be smaller
    assert 0 < kafka.start_seconds < 180  # when it would have been given up


@pytest.mark.slow
def test_records_survive_a_kill_and_the_folder_does_not_survive_stop(jars):
    with KafkaServer({"log.flush.interval.messages": "1"}, quick=True) as server:
        produce(server, "kept", [b"before"])
        killed = server.pid
        server.kill()
        assert not server.is_alive()
        server.restart()
        assert server.pid != killed
        assert consume(server, "kept", 1) == [b"before"]
        folder = server.data_dir.parent
    assert not server.is_alive()
    assert not folder.exists()


def test_a_setting_kafka_refuses_is_an_error_with_its_words(jars):
    with pytest.raises(ConfigError, match="bystander"):
        KafkaServer({"process.roles": "bystander"})


@pytest.mark.slow
def test_a_server_ends_with_the_process_that_started_it_however_that_ends(jars):
    killed = (
        "import os, signal\n"
        "from headrace.testing.kafka import KafkaServer\n"
        "server = KafkaServer(quick=True)\n"
        "print(server.pid, server.data_dir, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", killed], capture_output=True, text=True, timeout=150)
    pid, data_dir = done.stdout.split()
    deadline = time.monotonic() + 60
    while Path(data_dir).parent.exists() or Path("/proc", pid).exists():
        assert time.monotonic() < deadline, "it, or its folder, is still there"
        time.sleep(0.05)


def test_a_machine_without_maven_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerUnavailable, match="mvn"):
        fetch_kafka(tmp_path)


@pytest.mark.slow
def test_a_registry_out_of_reach_leaves_no_half_fetched_folder(tmp_path, monkeypatch):
    if shutil.which("mvn") is None:
        pytest.skip("there is no `mvn` on the path")
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text("<settings><offline>true</offline></settings>")
    monkeypatch.setenv("MAVEN_OPTS", f"-Duser.home={tmp_path}")
    with pytest.raises(PeerUnavailable, match="Maven could not fetch"):
        fetch_kafka(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.slow
def test_two_fetches_at_once_get_one_complete_folder(jars, tmp_path):
    found = []
    both = [threading.Thread(target=lambda: found.append(fetch_kafka(tmp_path))) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    names = {jar.name for jar in jars.iterdir()}
    assert [{jar.name for jar in folder.iterdir()} for folder in found] == [names, names]
    assert [path.name for path in tmp_path.iterdir()] == [f"kafka-{KAFKA_VERSION}"]
