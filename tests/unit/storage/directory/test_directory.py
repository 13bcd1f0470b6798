import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import ConfigError, CorruptionError, DiskError, RequestError
from headrace.storage import DataDirectory
from headrace.testing.batches import batch, commit, read_all
from headrace.testing.disk import Crash, SimulatedDisk

DATA = Path("data")


@pytest.fixture
def directory(disk):
    return DataDirectory(DATA, disk=disk)


def code_of(call, *args):
    with pytest.raises(RequestError) as refused:
        call(*args)
    return refused.value.code


def test_a_topic_is_there_after_a_power_cut(disk, directory):
    topic = directory.create_topic("orders", 3, {"retention.ms": "1000"})
    commit(topic.partitions[2], batch(b"a"))
    again = DataDirectory(DATA, disk=disk.after_power_cut())
    found = again.topics["orders"]
    assert (found.id, len(found.partitions), found.overrides) == (topic.id, 3, {"retention.ms": "1000"})
    assert found.config.retention_ms == 1000
    assert again.topics_by_id[topic.id] is found
    assert [record.value for record in read_all(found.partitions[2])] == [b"a"]
    assert again.cluster_id == directory.cluster_id


def test_names_never_become_paths(disk, directory):
    topic = directory.create_topic("__orders.v1-x", 1)
    assert list(disk.list(DATA / "topics")) == [str(topic.id)]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\0", "new\n"])
def test_names_that_kafka_refuses_are_refused(directory, name):
    assert code_of(directory.create_topic, name, 1) == 17
    assert not directory.topics


def test_what_cannot_be_done_is_refused_with_kafkas_codes(directory):
    directory.create_topic("a", 2)
    assert code_of(directory.create_topic, "a", 1) == 36
    assert code_of(directory.delete_topic, "b") == 3
    assert code_of(directory.add_partitions, "b", 3) == 3
    assert code_of(directory.alter_config, "b", {}) == 3
    assert code_of(directory.add_partitions, "a", 2) == 37
    assert code_of(directory.create_topic, "c", 0) == 37
    assert code_of(directory.create_topic, "c", 1, {"no.such": "1"}) == 40
    assert code_of(directory.alter_config, "a", {"retention.ms": "soon"}) == 40
    assert list(directory.topics) == ["a"]


def test_a_deleted_topic_is_gone_with_its_files_and_its_name_is_free(disk, directory):
    first = directory.create_topic("a", 2)
    commit(first.partitions[0], batch(b"old"))
    directory.delete_topic("a")
    assert disk.list(DATA / "topics") == {}
    second = directory.create_topic("a", 1)
    assert second.id != first.id
    assert second.partitions[0].high_watermark == 0
    with pytest.raises(DiskError, match="deleted"):
        first.partitions[0].append(batch(b"x"), now_ms=1)


def test_a_reader_in_the_midst_of_a_deleted_topic_reads_on(directory):
    log = directory.create_topic("a", 1).partitions[0]
    commit(log, batch(b"old"))
    with log.locate(0, 100) as extent:
        directory.delete_topic("a")
        assert len(extent.read_chunk(1000)) == extent.size_bytes


def test_partitions_are_added_and_keep_the_old_ones(disk, directory):
    topic = directory.create_topic("a", 1)
    commit(topic.partitions[0], batch(b"old"))
    directory.add_partitions("a", 3)
    again = DataDirectory(DATA, disk=disk.after_power_cut()).topics["a"]
    assert [log.high_watermark for log in again.partitions] == [1, 0, 0]


def test_overrides_are_replaced_whole_and_take_effect(disk, directory):
    topic = directory.create_topic("a", 1, {"retention.ms": "5", "segment.bytes": "2000"})
    directory.alter_config("a", {"segment.bytes": "1024"})
    assert topic.config.retention_ms == 604_800_000
    assert topic.partitions[0].config.segment_bytes == 1024
    commit(topic.partitions[0], batch(b"x" * 900), batch(b"x" * 900))
    assert topic.partitions[0].segment_count == 2
    again = DataDirectory(DATA, disk=disk.after_power_cut())
    assert again.topics["a"].overrides == {"segment.bytes": "1024"}


def test_producer_ids_never_repeat_across_power_cuts(disk, directory):
    seen = []
    for _ in range(5):
        first = directory.allocate_producer_ids(10)
        seen += range(first, first + 10)
        disk = disk.after_power_cut()
        directory = DataDirectory(DATA, disk=disk)
    assert len(set(seen)) == 50


def test_a_clean_close_leaves_nothing_to_scan(disk, directory):
    topic = directory.create_topic("a", 4)
    for log in topic.partitions:
        commit(log, batch(b"x"))
    directory.close()
    again = DataDirectory(DATA, disk=disk)
    assert [log.scanned_bytes for log in again.topics["a"].partitions] == [0] * 4


def test_a_second_process_is_refused_and_told_who_holds_the_directory(tmp_path):
    directory = DataDirectory(tmp_path)
    code = "from pathlib import Path; from headrace.storage import DataDirectory; "
    code += f"DataDirectory(Path({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"in use by process {os.getpid()}" in done.stderr
    assert "ConfigError" in done.stderr
    directory.close()
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_newer_format_is_refused_with_a_clear_message(disk, directory):
    directory.close()
    disk.replace_file(DATA / "headrace.json", json.dumps({"format_version": 2, "cluster_id": "x"}).encode())
    with pytest.raises(ConfigError, match=r"format version 2, this Headrace reads 1; install"):
        DataDirectory(DATA, disk=disk)


def test_a_format_file_that_vanished_from_among_topics_is_not_made_anew(disk, directory):
    directory.create_topic("a", 1)
    directory.close()
    disk.unlink(DATA / "headrace.json")
    with pytest.raises(ConfigError, match="restore it"):
        DataDirectory(DATA, disk=disk)


def test_a_damaged_topic_file_is_named(disk, directory):
    topic = directory.create_topic("a", 1)
    directory.close()
    disk.replace_file(topic.path / "topic.json", b"{")
    with pytest.raises(CorruptionError, match=r"topic.json"):
        DataDirectory(DATA, disk=disk)


def test_a_full_disk_refuses_a_new_topic_and_leaves_no_trace(disk, directory):
    directory.create_topic("a", 1)
    for spare in range(0, 300, 20):
        disk.capacity_bytes = disk.used_bytes() + spare
        try:
            directory.create_topic("b", 2)
        except DiskError as error:
            assert error.full
            assert "b" not in directory.topics
        else:
            break
        disk.capacity_bytes = None
        again = DataDirectory(DATA, disk=disk.after_power_cut())
        assert list(again.topics) == ["a"]
    else:
        pytest.fail("never enough space")


def crash_points(work):
    """Runs `work` on fresh disks, stopping at each of its steps; yields the step and the disk found after."""
    rehearsal = SimulatedDisk()
    directory = DataDirectory(DATA, disk=rehearsal)
    start = rehearsal.steps
    work(directory)
    for step in range(start, rehearsal.steps):
        disk = SimulatedDisk()
        directory = DataDirectory(DATA, disk=disk)
        disk.crash_at = step
        with pytest.raises(Crash):
            work(directory)
        yield disk.after_power_cut()
        yield disk.after_kill()


def test_a_crash_at_any_step_of_creating_a_topic_leaves_all_of_it_or_nothing():
    for disk in crash_points(lambda directory: directory.create_topic("a", 2, {"retention.ms": "9"})):
        again = DataDirectory(DATA, disk=disk)
        if "a" in again.topics:
            topic = again.topics["a"]
            assert (len(topic.partitions), topic.config.retention_ms) == (2, 9)
            assert commit(topic.partitions[1], batch(b"x")) == 1
        assert all(not name.startswith(".") for name in disk.list(DATA / "topics"))


def test_a_crash_at_any_step_of_deleting_a_topic_leaves_all_of_it_or_nothing():
    def work(directory):
        topic = directory.topics.get("a") or directory.create_topic("a", 2)
        commit(topic.partitions[0], batch(b"x"))
        directory.delete_topic("a")

    for disk in crash_points(work):
        again = DataDirectory(DATA, disk=disk)
        if "a" in again.topics:
            assert len(again.topics["a"].partitions) == 2
        assert all(not name.startswith(".") for name in disk.list(DATA / "topics"))


def test_a_crash_at_any_step_of_altering_leaves_the_old_or_the_new():
    def work(directory):
        directory.create_topic("a", 1, {"retention.ms": "1"})
        directory.alter_config("a", {"retention.ms": "2"})
        directory.add_partitions("a", 2)

    for disk in crash_points(work):
        again = DataDirectory(DATA, disk=disk)
        if "a" in again.topics:
            topic = again.topics["a"]
            assert (topic.config.retention_ms, len(topic.partitions)) in {(1, 1), (2, 1), (2, 2)}
