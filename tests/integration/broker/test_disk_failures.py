"""A disk that fails, fills up or rots under a running broker."""

import contextlib
import errno
import json
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from queue_member import QueueMember
from scraping import ask, scrape, value

from headrace.errors import RetriableError
from headrace.records import read_header
from headrace.storage import Disk
from headrace.testing.broker import BrokerProcess, running_broker
from headrace.testing.disk import SimulatedDisk
from headrace.wire import Api, ErrorCode

from .conftest import NOW_MS, Peer, batch_of
from .test_produce_and_fetch import values_in


class Insider(Peer):
    """A client that also looks into the broker."""

    def __init__(self, broker) -> None:
        super().__init__(broker.port)
        self.port, self.broker = broker.port, broker

    def path_of(self, topic: str) -> Path:
        return self.broker.services.directory.topics[topic].path

    def delete(self, topic: str):
        asked = {"topics": [{"name": topic, "topic_id": None}], "timeout": 10_000}
        return self.request(Api.DELETE_TOPICS, 6, asked).responses[0]

    def wait_for_readers(self, topic: str) -> None:
        """Waits until a fetch waits for records."""
        deadline = time.monotonic() + 30
        while not self.broker.services.topics.partition(topic, 0).readers:
            assert time.monotonic() < deadline, "nobody came to wait"
            time.sleep(0.001)


@contextlib.contextmanager
def broker_on(disk: SimulatedDisk):
    with running_broker(Path("/data"), disk=disk) as broker, contextlib.closing(Insider(broker)) as peer:
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
        path = broker.services.topics.partition("t", 0).log.path
    file = next(path.glob("*02.log"))
    start, end = _flip_in_the_middle_of_batch(file, 1)  # offset 3, in a sealed segment
    with running_broker(tmp_path, metrics_listen="127.0.0.1:0") as broker:
        read, closed = _read_all(broker.port, "t", 10)
        assert sorted(read) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert closed <= 1
        (damage,) = broker.services.topics.partition("t", 0).log.damage
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


class NoRenameOf(SimulatedDisk):
    """A disk that refuses to rename one folder, while it is told to."""

    refused: Path | None = None

    def rename(self, source: Path, target: Path) -> None:
        if source == self.refused:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(source))
        super().rename(source, target)


def test_a_deletion_that_the_disk_refuses_is_answered_so_and_loses_no_record():
    disk = NoRenameOf()
    with broker_on(disk) as peer:
        disk.refused = peer.path_of("t")
        refused = peer.delete("t")
        assert refused.error_code == ErrorCode.kafka_storage_error
        assert "not permitted" in refused.error_message
        assert peer.produce("t", batch_of(b"later")).base_offset == 1
        assert values_in(peer.fetch("t", 0)) == [b"safe", b"later"]
    restarted = running_broker(Path("/data"), disk=disk.after_kill())
    with restarted as broker, contextlib.closing(Insider(broker)) as peer:
        assert values_in(peer.fetch("t", 0)) == [b"safe", b"later"]
        assert peer.delete("t").error_code == 0
        assert peer.fetch("t", 0).error_code == ErrorCode.unknown_topic_or_partition


def test_a_reader_who_waits_over_a_failed_deletion_gets_the_next_record():
    disk = NoRenameOf()
    with broker_on(disk) as peer:
        disk.refused = peer.path_of("t")
        with contextlib.closing(Peer(peer.port)) as reader, ThreadPoolExecutor(1) as waiting:
            answer = waiting.submit(reader.fetch, "t", 1, wait_ms=60_000)
            peer.wait_for_readers("t")
            assert peer.delete("t").error_code == ErrorCode.kafka_storage_error
            assert peer.produce("t", batch_of(b"later")).error_code == 0
            assert values_in(answer.result(30)) == [b"later"]


class BadSectors(Disk):
    """The machine's disk, which does not read one file while it is told not to."""

    bad: Path | None = None

    def _check(self, fd: int) -> None:
        if self.bad is not None and Path(f"/proc/self/fd/{fd}").readlink() == self.bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self._check(fd)
        return super().pread(fd, size, position)

    def pread_into(self, fd: int, buffer: bytearray | memoryview, position: int) -> int | None:
        self._check(fd)
        return super().pread_into(fd, buffer, position)


def fetch_both(broker, offset: int = 0):
    """Both partitions of `t` in one fetch, asked for again when the connection is lost; how often it was."""
    parts = [{"partition": n, "fetch_offset": offset, "partition_max_bytes": 1 << 20} for n in (0, 1)]
    fields = {"max_wait": 0, "min_bytes": 1, "topics": [{"topic": "t", "partitions": parts}]}
    for lost in range(5):
        with contextlib.closing(Peer(broker.port)) as peer, contextlib.suppress(RetriableError):
            (topic,) = peer.request(Api.FETCH, 11, fields).responses
            return {part.partition_index: part for part in topic.partitions}, lost
    raise AssertionError("the fetch is never answered")


@pytest.mark.parametrize("size", [10, 200_000], ids=["small", "large"])
def test_a_partition_that_cannot_be_read_starves_no_other_is_named_and_recovers(tmp_path, size):
    disk = BadSectors()
    with running_broker(tmp_path, disk=disk, metrics_listen="127.0.0.1:0") as broker:
        with contextlib.closing(Peer(broker.port)) as peer:
            peer.create("t", 2)
            for partition in (0, 1):
                peer.produce("t", batch_of(bytes(size)), partition=partition)
        assert ask(broker.metrics_port, "/health")[0] == 200
        (disk.bad,) = broker.services.topics.partition("t", 0).log.path.glob("*.log")
        for first in (True, False, False):
            parts, lost = fetch_both(broker)
            assert lost <= first
            assert parts[0].error_code == ErrorCode.kafka_storage_error
            assert values_in(parts[1]) == [bytes(size)]
        status, _, text = ask(broker.metrics_port, "/health")
        (problem,) = json.loads(text)["problems"]
        assert status == 503
        assert problem.startswith(f"partition t:0: {disk.bad} [")
        assert "Input/output error" in problem
        unreadable = {
            n: value(scrape(broker), "headrace_partition_unreadable", topic="t", partition=n) for n in "01"
        }
        assert unreadable == {"0": 1, "1": 0}
        disk.bad = None
        wait_healthy(broker)
        parts, lost = fetch_both(broker)
        assert (lost, values_in(parts[0]), values_in(parts[1])) == (0, [bytes(size)], [bytes(size)])


def wait_healthy(broker) -> None:
    deadline = time.monotonic() + 30
    while ask(broker.metrics_port, "/health")[0] != 200:
        assert time.monotonic() < deadline, "it is not noticed that the disk reads again"
        time.sleep(0.05)


def problems_of(broker) -> list[str]:
    status, _, text = ask(broker.metrics_port, "/health")
    assert status == 503
    return json.loads(text)["problems"]


@pytest.fixture
def two_partitions(tmp_path):
    """A broker with a record in both partitions of `t`, on a disk that may be told not to read one."""
    disk = BadSectors()
    started = running_broker(tmp_path, disk=disk, metrics_listen="127.0.0.1:0")
    with started as broker, contextlib.closing(Insider(broker)) as peer:
        peer.disk = disk
        peer.create("t", 2)
        for partition in (0, 1):
            peer.produce("t", batch_of(b"old"), partition=partition)
        yield peer


def spoil(peer: Insider, topic: str = "t", partition: int = 0) -> Path:
    """Lets the disk read no more of a partition; the file."""
    (peer.disk.bad,) = peer.broker.services.topics.partition(topic, partition).log.path.glob("*.log")
    return peer.disk.bad


def offsets_of_both(peer: Insider, timestamp: int) -> list[tuple[int, int]]:
    """Error code and offset of each partition of `t`, in one request."""
    parts = [{"partition_index": index, "timestamp": timestamp} for index in (0, 1)]
    asked = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": parts}]}
    (topic,) = peer.request(Api.LIST_OFFSETS, 7, asked).topics
    return [(part.error_code, part.offset) for part in topic.partitions]


@pytest.mark.parametrize("timestamp", [0, NOW_MS, -3], ids=["any", "of the record", "the largest"])
def test_a_partition_that_cannot_be_read_keeps_no_other_from_its_offset_by_time(two_partitions, timestamp):
    peer = two_partitions
    file = spoil(peer)
    for _ in range(2):
        assert offsets_of_both(peer, timestamp) == [(ErrorCode.kafka_storage_error, -1), (0, 0)]
    (problem,) = problems_of(peer.broker)
    assert problem.startswith(f"partition t:0: {file}: cannot be read: Input/output error")
    assert offsets_of_both(peer, -1) == offsets_of_both(peer, -1) == [(0, 1), (0, 1)]
    peer.disk.bad = None
    wait_healthy(peer.broker)
    assert offsets_of_both(peer, timestamp) == [(0, 0), (0, 0)]


def configure_queue(peer: Insider, group: str, **settings: str) -> None:
    configs = [
        {"name": name.replace("_", "."), "config_operation": 0, "value": value}
        for name, value in settings.items()
    ]
    asked = {"resources": [{"resource_type": 32, "resource_name": group, "configs": configs}]}
    (answer,) = peer.request(Api.INCREMENTAL_ALTER_CONFIGS, 1, asked).responses
    assert answer.error_code == 0


def test_a_partition_that_cannot_be_read_keeps_no_queue_from_beginning_at_a_time_in_the_others(
    two_partitions,
):
    peer = two_partitions
    file = spoil(peer)
    configure_queue(peer, "q", share_auto_offset_reset="by_duration:PT1H")
    topic_id = peer.broker.services.topics.named("t").id
    with contextlib.closing(QueueMember(peer.port, "q", "m", topic_id, partitions=2)) as member:
        assert member.beat("t").error_code == 0
        got = member.fetch(wait_ms=0)
        codes = {part.partition_index: part.error_code for part in got.responses[0].partitions}
        assert codes == {0: ErrorCode.kafka_storage_error, 1: 0}
        assert [(partition, value) for partition, _, value, _ in member.got] == [(1, b"old")]
        assert str(file) in problems_of(peer.broker)[0]
        peer.disk.bad = None
        wait_healthy(peer.broker)
        peer.produce("t", batch_of(b"ancient", timestamp_ms=1))  # behind it, and begun at by nobody
        member.fetch(wait_ms=0)
        assert [(partition, value) for partition, _, value, _ in member.got] == [(0, b"old"), (0, b"ancient")]


def test_a_queue_begins_at_its_time_also_where_the_disk_read_again_later(two_partitions):
    """Not at the first record, as in a partition that is added."""
    peer = two_partitions
    peer.create("timed", 2)
    for partition in (0, 1):
        peer.produce("timed", batch_of(b"too old", timestamp_ms=NOW_MS - 7_200_000), partition=partition)
        peer.produce("timed", batch_of(b"recent"), partition=partition)
    spoil(peer, "timed")
    configure_queue(peer, "q", share_auto_offset_reset="by_duration:PT1H")
    topic_id = peer.broker.services.topics.named("timed").id
    with contextlib.closing(QueueMember(peer.port, "q", "m", topic_id, partitions=2)) as member:
        assert member.beat("timed").error_code == 0
        member.fetch(wait_ms=0)
        assert [(partition, value) for partition, _, value, _ in member.got] == [(1, b"recent")]
        peer.disk.bad = None
        wait_healthy(peer.broker)
        member.fetch(wait_ms=0)
        assert [(partition, value) for partition, _, value, _ in member.got] == [(0, b"recent")]


def commit_offset(peer: Peer, topic: str, offset: int) -> int:
    parts = [{"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}]
    body = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    answer = peer.request(Api.OFFSET_COMMIT, 8, {**body, "topics": [{"name": topic, "partitions": parts}]})
    return answer.topics[0].partitions[0].error_code


def committed_offset(peer: Peer, topic: str) -> tuple[int, int]:
    """The error code and the offset."""
    asked = {"group_id": "g", "topics": [{"name": topic, "partition_indexes": [0]}]}
    answer = peer.request(Api.OFFSET_FETCH, 7, asked)
    return answer.error_code, answer.topics[0].partitions[0].committed_offset if answer.topics else -1


def test_a_partition_that_cannot_be_read_keeps_no_other_from_being_measured_for_overload(two_partitions):
    peer = two_partitions
    for topic in ("a", "bad", "c"):
        peer.create(topic, **{"headrace.overload": "block", "headrace.overload.bytes": 1 << 20})
        peer.produce(topic, batch_of(b"unread"))
    spoil(peer, "bad")
    for topic in ("a", "bad", "c"):
        assert commit_offset(peer, topic, 0) == 0
    overload, deadline = peer.broker.services.overload, time.monotonic() + 30
    while any(
        overload.backlog(peer.broker.services.topics.partition(topic, 0)) is None for topic in ("a", "c")
    ):
        assert time.monotonic() < deadline, "one partition keeps the others from being measured"
        time.sleep(0.02)


def test_groups_whose_topic_the_disk_does_not_read_are_there_again_when_it_does(tmp_path, caplog):
    disk = BadSectors()
    with running_broker(tmp_path, disk=disk) as broker, contextlib.closing(Peer(broker.port)) as peer:
        peer.create("t")
        assert peer.produce("t", batch_of(b"kept")).error_code == 0
        assert commit_offset(peer, "t", 1) == 0
        (disk.bad,) = broker.services.topics.partition("__consumer_offsets", 0).log.path.glob("*.log")
    started = running_broker(tmp_path, disk=disk, metrics_listen="127.0.0.1:0")
    with started as broker, contextlib.closing(Peer(broker.port)) as peer:
        assert values_in(peer.fetch("t", 0)) == [b"kept"]
        assert committed_offset(peer, "t")[0] == ErrorCode.coordinator_not_available
        problems = "\n".join(problems_of(broker))
        assert "groups are not available" in problems
        assert str(disk.bad) in problems
        disk.bad = None
        deadline = time.monotonic() + 30
        while committed_offset(peer, "t") != (0, 1):
            assert time.monotonic() < deadline, "the topic of groups is not read again"
            time.sleep(0.05)
        wait_healthy(broker)
    told = [record for record in caplog.records if "groups are unavailable" in record.getMessage()]
    assert len(told) == 1


def test_a_data_directory_that_is_removed_is_no_longer_acknowledged_into(tmp_path):
    data = tmp_path / "data"
    with BrokerProcess(data, metrics_listen="127.0.0.1:0") as broker:
        with contextlib.closing(Peer(broker.port)) as peer:
            peer.create("t")
            assert peer.produce("t", batch_of(b"safe")).error_code == 0
            shutil.rmtree(data)
            removed = time.monotonic()
            while (answer := peer.produce("t", batch_of(b"lost"))).error_code == 0:
                assert time.monotonic() < removed + 120, "it is acknowledged on and on"
            assert answer.error_code == ErrorCode.kafka_storage_error
            assert "was removed, moved or replaced" in answer.error_message
            assert peer.produce("t", batch_of(b"later")).error_code == ErrorCode.kafka_storage_error
        status, _, text = ask(broker.metrics_port, "/health")
        problems = "\n".join(json.loads(text)["problems"])
        assert status == 503
        assert "partition t:0 cannot be written" in problems
        assert "is no longer the directory that was opened" in problems
        assert not data.exists()
