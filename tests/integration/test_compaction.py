"""Compaction of a whole broker: within its memory, while producing and reading go on."""

import contextlib
import json
import threading
import time
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.storage import Disk
from headrace.storage.compaction.clean_end import read_clean_end
from headrace.testing.broker import BrokerProcess

TOPIC = "table"
MIB = 1024 * 1024


class Load:
    """Writes numbered values of a fixed set of keys, and knows the newest of each."""

    def __init__(self, bootstrap, keys):
        self.keys = [b"key-%07d" % number for number in range(keys)]
        self.newest = {}
        self.sent = 0
        self.slowest_s = 0.0
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
            # Every key in turn, in an order that is not that of the keys.
            key = self.keys[self.sent * 7919 % len(self.keys)]
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

    def write_until(self, stop):
        """A little at a time, and how long the slowest acknowledgement took."""
        while not stop.wait(0.01):
            began = time.monotonic()
            self.write(100)
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)


def table(bootstrap):
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
    found, count = {}, 0
    with contextlib.closing(consumer):
        while True:
            for message in consumer.consume(10_000, 30):
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


def compact_while_producing(folder, *, records, keys, memory_bound, segment_bytes, **settings):
    with BrokerProcess(folder, upkeep_interval_ms=600_000, **settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        config = {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes)}
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(30)
        load = Load(broker.bootstrap, keys)
        load.write(records)
        before = memory_bytes(broker.pid)
        (partition,) = (f.parent for f in folder.glob("topics/*/0/checkpoint") if name_of(f) == TOPIC)
        sealed = max(int(file.stem) for file in partition.glob("*.log"))
        broker.settings["upkeep_interval_ms"] = 200
        stop = threading.Event()
        writer = threading.Thread(target=load.write_until, args=(stop,))
        writer.start()  # before compaction can begin, which may be over in a moment
        broker.restart()
        began = time.monotonic()
        while clean_end(partition) < sealed:
            assert time.monotonic() - began < 600, "not compacted within ten minutes"
            stop.wait(0.05)
        seconds = time.monotonic() - began
        stop.set()
        writer.join()
        peak = memory_bytes(broker.pid)
        found, met = table(broker.bootstrap)
        size = sum(file.stat().st_size for file in partition.glob("*log"))
        print(
            f"\n{records:,} records of {keys:,} keys compacted in {seconds:.1f} s"
            f" while {load.sent - records:,} more were produced (slowest 100: {load.slowest_s:.2f} s);"
            f" memory {before / MIB:.0f} MiB loading, {peak / MIB:.0f} MiB compacting;"
            f" {met:,} records and {size / MIB:.1f} MiB left"
        )
        assert found == load.newest
        assert load.sent > records, "nothing was produced meanwhile"
        assert met <= keys + load.sent - sealed
        assert max(before, peak) < memory_bound


pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see memory")


def test_a_topic_is_compacted_within_memory_while_producing_goes_on(tmp_path):
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
def test_five_million_records_are_compacted_within_200_mb_while_producing_goes_on(tmp_path):
    compact_while_producing(
        tmp_path, records=5_000_000, keys=100_000, memory_bound=200_000_000, segment_bytes=64 * MIB
    )
