"""Compaction of a whole broker: within its memory, while producing and reading go on."""

import contextlib
import json
import queue
import threading
import time
from pathlib import Path

import confluent_kafka as ck
import pytest
from broker.conftest import NOW_MS, Peer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from scraping import scrape, value

from headrace.records import Record, decode_batch, encode_batch
from headrace.storage import Disk
from headrace.storage.compaction.run import read_clean_end
from headrace.testing.batches import batches_in
from headrace.testing.broker import BrokerProcess, running_broker

TOPIC = "table"
MIB = 1024 * 1024


class Load:
    """Writes numbered values of a fixed set of keys, and knows the newest of each."""

    def __init__(self, bootstrap, keys):
        self.keys = [b"key-%07d" % number for number in range(keys)]
        self.newest = {}
        self.sent = 0
        self.acknowledged = 0
        self.at_work = threading.Event()
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 20,
                "batch.num.messages": 10_000,
                "queue.buffering.max.messages": 500_000,
                "enable.idempotence": True,
            }
        )

    def write(self, records):
        for _ in range(records):
            key = self.key_of(self.sent)
            value = b"value-%012d" % self.sent
            while True:
                try:
                    self._producer.produce(TOPIC, value, key)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self.newest[key] = value
            self.sent += 1
        assert self._producer.flush(120) == 0
        self.acknowledged = self.sent

    def key_of(self, number):
        """Every key in turn, in an order that is not that of the keys."""
        return self.keys[number * 7919 % len(self.keys)]

    def write_until(self, stop):
        """A little at a time."""
        self.write(100)
        self.at_work.set()
        while not stop.wait(0.01):
            self.write(100)

    def check(self, found, *, acknowledged):
        """A table read after so much was acknowledged has every key, with its value of then or a newer."""
        assert len(found) == len(self.keys)
        for key, content in found.items():
            number = int(content.removeprefix(b"value-"))
            assert self.key_of(number) == key
            assert acknowledged - len(self.keys) <= number < self.sent


class Reading:
    """Reads the whole topic, again and again, beside whatever goes on, and checks it each time."""

    def __init__(self, bootstrap, load):
        self._bootstrap = bootstrap
        self._load = load
        self.at_work = threading.Event()
        self.passes = []  # when each began and ended
        self.failure = None

    def read_until(self, stop):
        try:
            while not stop.is_set():
                acknowledged, began = self._load.acknowledged, time.monotonic()
                found, _ = table(self._bootstrap, self.at_work.set)
                self._load.check(found, acknowledged=acknowledged)
                self.passes.append((began, time.monotonic()))
        except BaseException as failure:
            self.failure = failure
            self.at_work.set()


def table(bootstrap, on_records=lambda: None):
    """What a reader from the beginning to the end of the topic holds, and how many records it met."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    consumer.assign([ck.TopicPartition(TOPIC, 0, 0)])
    found, count, asked = {}, 0, time.monotonic()
    with contextlib.closing(consumer):
        while True:
            messages = consumer.consume(1000, 0.1)
            if messages:
                on_records()
                asked = time.monotonic()
            assert time.monotonic() - asked < 120, "nothing is served any more"
            for message in messages:
                if message.error() is not None:
                    assert message.error().code() == ck.KafkaError._PARTITION_EOF
                    return found, count
                found[message.key()] = message.value()
                count += 1


def memory_bytes(pid):
    """The most that a process ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def name_of(file):
    """The topic that a file of a partition belongs to."""
    return json.loads((file.parent.parent / "topic.json").read_text())["name"]


def clean_end(partition):
    """How far the partition says that it is compacted."""
    return read_clean_end(Disk(), partition / "clean-end")


def set_policy(admin, policy):
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def compact_while_producing(folder, *, records, keys, memory_bound, segment_bytes, **settings):
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(folder, upkeep_interval_ms=200, **settings))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        config = {"cleanup.policy": "delete", "segment.bytes": str(segment_bytes)}
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(30)
        load = Load(broker.bootstrap, keys)
        load.write(records)
        before = memory_bytes(broker.pid)
        (partition,) = (f.parent for f in folder.glob("topics/*/0/checkpoint") if name_of(f) == TOPIC)
        sealed = max(int(file.stem) for file in partition.glob("*.log"))
        broker.restart()  # from here on its memory is that of compacting
        stop, reading = threading.Event(), Reading(broker.bootstrap, load)
        others = [
            threading.Thread(target=call, args=(stop,)) for call in (load.write_until, reading.read_until)
        ]
        for each in others:
            each.start()
            stack.callback(each.join)
        stack.callback(stop.set)
        assert load.at_work.wait(120) and reading.at_work.wait(120)  # compaction may be over in a moment
        produced, began = load.sent, time.monotonic()
        set_policy(admin, "compact")
        while clean_end(partition) < sealed:
            assert time.monotonic() - began < 600, "not compacted within ten minutes"
            stop.wait(0.05)
        ended = time.monotonic()
        meanwhile = load.sent - produced
        stop.set()
        for each in others:
            each.join()
        peak = memory_bytes(broker.pid)
        found, met = table(broker.bootstrap)
        size = sum(file.stat().st_size for file in partition.glob("*log"))
        beside = [each for each in reading.passes if each[0] < ended and each[1] > began]
        print(
            f"\n{records:,} records of {keys:,} keys compacted in {ended - began:.1f} s"
            f" while {meanwhile:,} more were produced and all was read {len(beside)} times;"
            f" memory {before / MIB:.0f} MiB loading, {peak / MIB:.0f} MiB compacting;"
            f" {met:,} records and {size / MIB:.1f} MiB left"
        )
        assert found == load.newest
        assert meanwhile > 0, "nothing was produced meanwhile"
        assert met <= keys + load.sent - sealed
        assert max(before, peak) < memory_bound
        if reading.failure is not None:
            raise reading.failure
        assert beside, "nothing was read meanwhile"


pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see memory")


def test_a_topic_is_compacted_within_memory_while_producing_and_reading_go_on(tmp_path):
    compact_while_producing(tmp_path, records=100_000, keys=10_000, memory_bound=150 * MIB, segment_bytes=MIB)


@pytest.mark.slow
def test_more_keys_than_its_memory_holds_take_several_runs(tmp_path):
    compact_while_producing(
        tmp_path,
        records=40_000,
        keys=20_000,
        memory_bound=150 * MIB,
        segment_bytes=MIB,
        compaction_map_bytes=24 * 8000,
    )


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_five_million_records_are_compacted_within_200_mb_while_producing_and_reading_go_on(tmp_path):
    compact_while_producing(
        tmp_path, records=5_000_000, keys=100_000, memory_bound=200_000_000, segment_bytes=64 * MIB
    )


# --- standing still at every step -----------------------------------------------------------------


class HaltingDisk(Disk):
    """Once armed, stands still before each call that moves data or names for upkeep, until told to go on.

    What upkeep only opens or closes passes: that waits for no data.
    """

    def __init__(self):
        self.armed = False
        self.halts = queue.SimpleQueue()  # the name of each call, as it is reached
        self._permits = threading.Semaphore(0)

    def go_on(self):
        self._permits.release()

    def disarm(self):
        self.armed = False
        self.go_on()

    def halt(self, what):
        if self.armed and threading.current_thread().name.startswith("headrace-upkeep"):
            self.halts.put(what)
            self._permits.acquire()

    def open(self, path, *, write=False, create=False):
        if create:
            self.halt("create")
        return super().open(path, write=write, create=create)

    def pread(self, fd, size, position):
        self.halt("read")
        return super().pread(fd, size, position)

    def pwritev(self, fd, buffers, position):
        self.halt("write")
        return super().pwritev(fd, buffers, position)

    def sync(self, fd):
        self.halt("sync")
        super().sync(fd)

    def sync_directory(self, path):
        self.halt("sync directory")
        super().sync_directory(path)

    def rename(self, source, target):
        self.halt("rename")
        super().rename(source, target)

    def unlink(self, path):
        self.halt("unlink")
        super().unlink(path)


def fetched_table(peer):
    """The newest value of each key, by bare fetches from the start to the high watermark."""
    found, offset = {}, 0
    while True:
        answer = peer.fetch(TOPIC, offset)
        assert answer.error_code == 0
        data = bytes(answer.records or b"")
        if not data:
            assert offset == answer.high_watermark
            return found
        for position, header in batches_in(data):
            found |= {record.key: record.value for record in decode_batch(data, position)}
            offset = header.next_offset


def saved_bytes(broker):
    return value(scrape(broker), "headrace_compaction_saved_bytes_total", topic=TOPIC)


def test_a_compaction_that_stands_still_at_any_step_holds_up_no_producer_and_no_reader(tmp_path):
    disk, newest, steps = HaltingDisk(), {}, []
    with (
        running_broker(tmp_path, disk=disk, upkeep_interval_ms=20, metrics_listen="127.0.0.1:0") as broker,
        contextlib.closing(Peer(broker.port)) as peer,
    ):  # which waits for 20 s, not longer

        def write(key, content):
            answer = peer.produce(TOPIC, bytearray(encode_batch([Record(0, NOW_MS, key, content)])))
            assert answer.error_code == 0
            newest[key] = content

        peer.create(TOPIC, segment_bytes=16_000)
        for number in range(10):  # three to a segment
            write(b"key-%d" % (number % 2), bytes([number]) * 5000)
        disk.armed = True
        try:
            set_policy(AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"}), "compact")
            while not saved_bytes(broker):
                with contextlib.suppress(queue.Empty):
                    steps.append(disk.halts.get(timeout=0.1))
                    write(b"beside", b"%d" % len(steps))
                    assert fetched_table(peer) == newest
                    disk.go_on()
        finally:
            disk.disarm()
        assert {"create", "read", "write", "sync", "sync directory", "rename", "unlink"} == set(steps)
        assert fetched_table(peer) == newest
        found = scrape(broker)
        produced = value(found, "headrace_produced_bytes_total", topic=TOPIC)
        left = value(found, "headrace_partition_size_bytes", topic=TOPIC, partition="0")
        assert saved_bytes(broker) == produced - left > 20_000
        assert value(found, "headrace_upkeep_seconds_total") > 0
