from pathlib import Path

import pytest

from headrace.errors import DiskError, RequestError
from headrace.storage import DataDirectory, TopicConfig
from headrace.storage.partition.memory_log import DEFAULT_BOUND_BYTES, RESERVED_OFFSETS, MemoryLog
from headrace.testing.batches import batch, commit, read_all

PATH = Path("partition")


def open_memory(disk, **config):
    return MemoryLog.open_empty(PATH, TopicConfig(headrace_storage="memory", **config), disk=disk)


def test_a_commit_touches_no_disk(disk):
    log = open_memory(disk)
    steps = disk.steps
    for _ in range(100):
        assert not log.commit_waits
        commit(log, batch(b"x"))
    assert disk.steps == steps
    assert len(read_all(log)) == 100


def test_after_a_clean_stop_the_log_is_empty_and_offsets_go_on(disk):
    log = open_memory(disk)
    commit(log, batch(b"a", b"b", b"c"))
    log.close()
    log = open_memory(disk)
    assert (log.start_offset, log.high_watermark, read_all(log)) == (3, 3, [])
    assert log.append(batch(b"d"), now_ms=1).base_offset == 3


def test_after_a_crash_no_offset_is_given_twice(disk):
    log = open_memory(disk)
    commit(log, batch(b"a", b"b", b"c"))
    for after in (disk.after_power_cut(), disk.after_kill()):
        again = open_memory(after)
        assert again.start_offset == again.high_watermark == RESERVED_OFFSETS
        with pytest.raises(RequestError) as told:
            again.locate(3, 100)
        assert told.value.code == 1


def test_a_commit_beyond_the_reserve_makes_a_new_one_first(disk, monkeypatch):
    monkeypatch.setattr("headrace.storage.partition.memory_log.RESERVED_OFFSETS", 10)
    log = open_memory(disk)
    for number in range(50):
        commit(log, batch(b"%d" % number))
        assert open_memory(disk.after_power_cut()).start_offset > number


def test_upkeep_reserves_ahead_of_the_commits(disk, monkeypatch):
    monkeypatch.setattr("headrace.storage.partition.memory_log.RESERVED_OFFSETS", 10)
    log = open_memory(disk)
    for _ in range(100):
        log.append(batch(b"x"), now_ms=1)
        assert not log.commit_waits
        log.commit()
        log.apply_retention(1)


def test_without_room_for_a_reserve_the_batch_is_refused_and_later_ones_are_not(disk, monkeypatch):
    monkeypatch.setattr("headrace.storage.partition.memory_log.RESERVED_OFFSETS", 1)
    log = open_memory(disk)
    commit(log, batch(b"a"))
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(DiskError) as refused:
        commit(log, batch(b"b"))
    assert refused.value.full
    disk.capacity_bytes = None
    commit(log, batch(b"c"))
    assert [record.value for record in read_all(log)] == [b"a", b"c"]


def test_its_size_never_exceeds_the_bound(disk):
    log = open_memory(disk, retention_bytes=20_000)
    for number in range(300):
        commit(log, batch(b"%03d" % number + b"x" * 500))
        assert log.size_bytes <= 20_000
    kept = [record.offset for record in read_all(log)]
    assert kept == list(range(log.start_offset, 300))
    assert len(kept) > 25  # most of the bound is used


def test_a_batch_larger_than_the_bound_is_kept_alone(disk):
    log = open_memory(disk, retention_bytes=2000)
    commit(log, batch(b"small"))
    commit(log, batch(b"x" * 5000))
    assert [len(record.value) for record in read_all(log)] == [5000]
    commit(log, batch(b"small"))
    assert [len(record.value) for record in read_all(log)] == [5]


def test_there_is_a_bound_by_default_and_it_can_be_changed(disk):
    log = open_memory(disk)
    assert log.config.retention_bytes == DEFAULT_BOUND_BYTES
    commit(log, *[batch(b"x" * 900) for _ in range(20)])
    log.configure(TopicConfig(headrace_storage="memory", retention_bytes=3000))
    for _ in range(20):
        commit(log, batch(b"x" * 900))
    assert log.size_bytes <= 3000


def test_a_topic_says_where_it_is_kept_and_stays_there(disk):
    directory = DataDirectory(Path("data"), disk=disk)
    topic = directory.create_topic("fast", 2, {"headrace.storage": "memory"})
    assert all(isinstance(log, MemoryLog) for log in topic.partitions)
    directory.add_partitions("fast", 3)
    assert isinstance(topic.partitions[2], MemoryLog)
    with pytest.raises(RequestError, match="stays so") as refused:
        directory.alter_config("fast", {})
    assert refused.value.code == 40
    directory.alter_config("fast", {"headrace.storage": "memory", "retention.bytes": "5000"})
    assert topic.partitions[0].config.retention_bytes == 5000


def test_compaction_alone_cannot_keep_memory_bounded():
    with pytest.raises(RequestError, match="bounded"):
        TopicConfig.from_overrides({"headrace.storage": "memory", "cleanup.policy": "compact"})
