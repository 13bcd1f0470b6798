"""A data directory that is taken away from the broker that has it, or given to a second one."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import ConfigError, DiskError
from headrace.storage import DataDirectory, Disk
from headrace.storage.partition.writer import REACHABLE_MS
from headrace.testing.batches import batch, commit, read_all
from headrace.testing.disk import Crash, SimulatedDisk

OPEN = "import sys; from pathlib import Path; from headrace.storage import DataDirectory; "
OPEN += "DataDirectory(Path(sys.argv[1])).close()"


@pytest.fixture
def directory(tmp_path):
    directory = DataDirectory(tmp_path / "data")
    directory.create_topic("t", 1)
    yield directory
    directory.close()


def remove(path):
    shutil.rmtree(path)


def move_away(path):
    path.rename(path.with_name("elsewhere"))


def replace_by_a_copy(path):
    move_away(path)
    shutil.copytree(path.with_name("elsewhere"), path)


@pytest.mark.parametrize("take_away", [remove, move_away, replace_by_a_copy])
def test_nothing_is_acknowledged_a_second_after_the_directory_was_taken_away(directory, take_away):
    log = directory.topics["t"].partitions[0]
    now_ms = 1_000_000
    assert commit(log, batch(b"safe"), now_ms=now_ms) == 1
    take_away(directory.path)
    log.append(batch(b"lost"), now_ms=now_ms + REACHABLE_MS)
    with pytest.raises(DiskError, match=r"was removed, moved or replaced; the partition is read-only"):
        log.commit()
    assert log.high_watermark == 1
    with pytest.raises(DiskError):
        log.append(batch(b"later"), now_ms=now_ms + REACHABLE_MS)


@pytest.mark.parametrize("clock_ms", [REACHABLE_MS, -REACHABLE_MS], ids=["later", "clock set back"])
def test_a_lone_batch_is_not_written_into_a_file_that_was_taken_away(directory, clock_ms):
    log = directory.topics["t"].partitions[0]
    assert log.begin_direct_append(1, 100, 1_000_000) is not None
    log.end_direct_append(None)
    remove(directory.path)
    assert log.begin_direct_append(1, 100, 1_000_000 + clock_ms) is None
    log.append(batch(b"lost"), now_ms=1_000_000 + clock_ms)
    with pytest.raises(DiskError, match="was removed, moved or replaced"):
        log.commit()


class Counting(Disk):
    looked = 0

    def is_at(self, fd, path):
        self.looked += 1
        return super().is_at(fd, path)


def test_the_name_is_followed_once_a_second_and_not_for_every_record(tmp_path):
    disk = Counting()
    directory = DataDirectory(tmp_path, disk=disk)
    log = directory.create_topic("t", 1).partitions[0]
    before = disk.looked
    for number in range(100):
        commit(log, batch(b"x"), now_ms=1_000_000 + 30 * number)
    assert disk.looked - before == 3
    directory.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda directory: directory.create_topic("new", 1),
        lambda directory: directory.delete_topic("t"),
        lambda directory: directory.add_partitions("t", 2),
        lambda directory: directory.alter_config("t", {}),
        lambda directory: directory.allocate_producer_ids(1),
    ],
)
def test_no_topic_is_changed_in_a_directory_that_is_gone_and_none_is_made_in_its_place(directory, change):
    remove(directory.path)
    with pytest.raises(DiskError, match="removed or moved; bring it back, then restart"):
        change(directory)
    assert not directory.path.exists()
    assert list(directory.topics) == ["t"]


def test_a_removed_lock_file_lets_no_second_process_in(directory):
    (directory.path / "lock").unlink()
    second = [sys.executable, "-c", OPEN, str(directory.path)]
    done = subprocess.run(second, capture_output=True, text=True, check=False)
    assert "ConfigError" in done.stderr
    assert "is in use by process unknown" in done.stderr
    with pytest.raises(ConfigError, match="in use"):
        DataDirectory(directory.path)


def test_the_directories_above_a_new_one_survive_a_power_cut():
    disk = SimulatedDisk()
    log = DataDirectory(Path("a/b/c"), disk=disk).create_topic("t", 1).partitions[0]
    commit(log, batch(b"acked"))
    again = DataDirectory(Path("a/b/c"), disk=disk.after_power_cut())
    assert [record.value for record in read_all(again.topics["t"].partitions[0])] == [b"acked"]


def test_also_those_that_a_killed_process_made_and_did_not_sync():
    rehearsal = SimulatedDisk()
    DataDirectory(Path("a/b/c"), disk=rehearsal)
    for step in range(rehearsal.steps):
        disk = SimulatedDisk()
        disk.crash_at = step
        with pytest.raises(Crash):
            DataDirectory(Path("a/b/c"), disk=disk)
        disk = disk.after_kill()
        log = DataDirectory(Path("a/b/c"), disk=disk).create_topic("t", 1).partitions[0]
        commit(log, batch(b"acked"))
        again = DataDirectory(Path("a/b/c"), disk=disk.after_power_cut())
        assert [record.value for record in read_all(again.topics["t"].partitions[0])] == [b"acked"], step
