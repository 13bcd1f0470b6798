"""A disk that fails, fills up or rots under a running broker."""

import contextlib
import json
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from scraping import ask, scrape, value

from headrace.errors import RetriableError
from headrace.records import read_header
from headrace.testing.broker import BrokerProcess, running_broker
from headrace.testing.disk import SimulatedDisk
from headrace.wire import Api, ErrorCode

from .conftest import Peer, batch_of
from .test_produce_and_fetch import values_in


@contextlib.contextmanager
def broker_on(disk: SimulatedDisk):
    with running_broker(Path("/data"), disk=disk) as broker, contextlib.closing(Peer(broker.port)) as peer:
        peer.create("t")
        peer.create("other")
        assert peer.produce("t", batch_of(b"safe")).error_code == 0
        yield peer


def test_after_a_failed_sync_the_partition_is_read_only_and_the_others_are_not():
    disk = SimulatedDisk()
    with broker_on(disk) as peer:
        disk.failing_syncs = 1
        refused = peer.produce("t", batch_of(b"lost"))
        assert refused.error_code == ErrorCode.kafka_storage_error
        assert "read-only" in refused.error_message
        assert peer.produce("t", batch_of(b"later")).error_code == ErrorCode.kafka_storage_error
        assert peer.fetch("t", 0).high_watermark == 1
        assert len(peer.fetch("t", 0).records) > 0
        assert peer.produce("other", batch_of(b"fine")).error_code == 0


def test_a_full_disk_refuses_and_takes_again_when_there_is_room():
    disk = SimulatedDisk()
    with broker_on(disk) as peer:
        disk.capacity_bytes = disk.used_bytes() + 1000
        refused = peer.produce("t", batch_of(bytes(100_000)))
        assert refused.error_code == ErrorCode.kafka_storage_error
        assert peer.fetch("t", 0).high_watermark == 1
        disk.capacity_bytes = None
        again = peer.produce("t", batch_of(b"room"))
        assert (again.error_code, again.base_offset) == (0, 1)


def test_a_full_disk_refuses_to_delete_records_in_the_midst_of_a_segment_and_keeps_them():
    disk = SimulatedDisk()
    with broker_on(disk) as peer:
        peer.produce("t", batch_of(b"also safe"))
        disk.capacity_bytes = disk.used_bytes()
        part = {"partition_index": 0, "offset": 1}
        asked = {"topics": [{"name": "t", "partitions": [part]}], "timeout": 10_000}
        refused = peer.request(Api.DELETE_RECORDS, 2, asked).topics[0].partitions[0]
        assert refused.error_code == ErrorCode.kafka_storage_error
        assert values_in(peer.fetch("t", 0)) == [b"safe", b"also safe"]
        disk.capacity_bytes = None
        done = peer.request(Api.DELETE_RECORDS, 2, asked).topics[0].partitions[0]
        assert (done.error_code, done.low_watermark) == (0, 1)


def test_damage_is_never_served_and_everything_around_it_is(tmp_path, caplog):
    with running_broker(tmp_path) as broker, contextlib.closing(Peer(broker.port)) as peer:
        peer.create("t", segment_bytes=100_000)
        for n in range(10):
            peer.produce("t", batch_of(bytes([n]) * 40_000))
        path = broker.partition("t", 0).log.path
    file = next(path.glob("*02.log"))
    start, end = _flip_in_the_middle_of_batch(file, 1)  # offset 3, in a sealed segment
    with running_broker(tmp_path, metrics_listen="127.0.0.1:0") as broker:
        read, closed = _read_all(broker.port, "t", 10)
        assert sorted(read) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert closed <= 1
        (damage,) = broker.partition("t", 0).log.damage
        assert damage.path.name.endswith("02.log")
        assert (damage.first_offset, damage.next_offset) == (3, 4)
        with contextlib.closing(Peer(broker.port)) as peer:
            assert peer.fetch("t", 3).error_code == ErrorCode.corrupt_message
        where = f"{file} [{start}, {end})"
        told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert [line.startswith(f"{where}: records 3 to 3 are damaged") for line in told] == [True]
        status, _, text = ask(broker.metrics_port, "/health")
        assert status == 200  # all else is served
        (warning,) = json.loads(text)["warnings"]
        assert warning.startswith("partition t:0 ")
        assert f"{where}, records 3 to 3" in warning
        assert value(scrape(broker), "headrace_damaged_ranges", topic="t") == 1


def _flip_in_the_middle_of_batch(path: Path, number: int) -> tuple[int, int]:
    """Spoils a byte of one batch; where the batch begins and ends."""
    data = bytearray(path.read_bytes())
    position = 0
    for _ in range(number):
        position += read_header(data, position).size_bytes
    data[position + 20_000] ^= 0x10
    path.write_bytes(data)
    return position, position + read_header(data, position).size_bytes


def _read_all(port: int, topic: str, end: int) -> tuple[set[int], int]:
    """The offsets read as a patient consumer would, stepping over what is refused; connections lost."""
    read: set[int] = set()
    closed, offset, peer = 0, 0, Peer(port)
    while offset < end:
        try:
            answer = peer.fetch(topic, offset, max_bytes=1 << 20)
        except RetriableError:
            closed, peer = closed + 1, Peer(port)
            assert closed < 5
            continue
        if answer.error_code == ErrorCode.corrupt_message:
            offset += 1
            continue
        data, position = bytes(answer.records), 0
        while position < len(data):
            header = read_header(data, position)
            assert set(data[position + 100 : position + 40_000]) == {header.base_offset}
            read.add(header.base_offset)
            position, offset = position + header.size_bytes, header.next_offset
    peer.close()
    return read, closed


@pytest.fixture
def small_disk(tmp_path, without_real_disk):
    """A real file system of 12 MB."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode:
        without_real_disk(f"a tmpfs cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_real_full_disk_refuses_producers_serves_readers_and_recovers(small_disk):
    with BrokerProcess(small_disk / "data") as broker, contextlib.closing(Peer(broker.port)) as peer:
        peer.create("t", segment_bytes=1_000_000)
        acknowledged = _fill(broker.bootstrap)
        assert acknowledged > 50
        assert peer.fetch("t", 0).high_watermark == acknowledged
        keep = acknowledged - 10
        parts = [{"partition_index": 0, "offset": keep}]
        peer.request(Api.DELETE_RECORDS, 2, {"topics": [{"name": "t", "partitions": parts}], "timeout": 1000})
        assert peer.produce("t", batch_of(b"room again")).base_offset == acknowledged
        broker.kill()
        broker.start()
        with contextlib.closing(Peer(broker.port)) as after:
            assert after.fetch("t", keep).high_watermark == acknowledged + 1


def _fill(bootstrap: str) -> int:
    """Produces 100 KB records until one is refused; how many were acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "retries": 0, "log_level": 0})
    outcomes: list[KafkaError | None] = []
    for _ in range(1000):
        producer.produce("t", bytes(100_000), on_delivery=lambda error, _: outcomes.append(error))
        producer.flush(20)
        if outcomes[-1] is not None:
            assert outcomes[-1].code() == KafkaError.KAFKA_STORAGE_ERROR, outcomes[-1]
            return len(outcomes) - 1
    raise KafkaException("12 MB took 100 MB")
