"""A disk that does not read some bytes, and later does."""

import errno
import os
import tempfile
from pathlib import Path

import pytest

from headrace.errors import DiskError
from headrace.storage import PartitionLog, TopicConfig
from headrace.storage.disk.unreadable import RETRY_S, UnreadablePlaces
from headrace.testing.batches import batch, commit, read_all
from headrace.testing.disk import SimulatedDisk


class BadSectors(SimulatedDisk):
    """Does not read the bytes of any file from `bad_from` to `bad_to`; counts how often it was asked to."""

    bad_from = bad_to = asked = 0

    def pread(self, fd, size, position):
        if position < self.bad_to and position + size > self.bad_from:
            self.asked += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().pread(fd, size, position)


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def log(open_log):
    disk = BadSectors()
    log = open_log(disk, segment_bytes=1 << 20)
    commit(log, *[batch(b"%d" % number * 500) for number in range(10)])
    log.roll()
    commit(log, batch(b"active"))
    log.disk, log.clock = disk, Clock()
    log._reader.unreadable = UnreadablePlaces(log.clock)
    return log


def fail_in_batch(log, number, count=1):
    """Lets the disk fail in some batches of the sealed segment, and a reader run into it."""
    size = len(batch(b"0" * 500))
    log.disk.bad_from, log.disk.bad_to = number * size + 100, (number + count) * size - 100
    with pytest.raises(DiskError, match="cannot be read"):
        log.read(0, 100_000)


def offsets(log, first, max_bytes=100_000):
    with log.locate(first, max_bytes) as extent:
        data = extent.read_whole()
    size = len(batch(b"0" * 500))
    return list(range(first, first + len(data) // size))


def test_what_lies_before_and_behind_is_served_and_what_cannot_be_read_is_named(log):
    fail_in_batch(log, 4)
    (place,) = log.unreadable
    assert place.path.name == "00000000000000000000.log"
    assert offsets(log, 0) == [0]  # one by one, since any of what was asked for may be it
    assert offsets(log, 1) == [1]
    assert offsets(log, 3) == [3]
    with pytest.raises(DiskError, match=r"\.log \[\d+, \d+\): cannot be read: Input/output error; check"):
        log.locate(4, 100)
    assert offsets(log, 5) == [5]
    assert read_all(log, 10)[0].value == b"active"
    assert log.high_watermark == 11


def test_the_disk_is_not_asked_again_for_a_moment_and_never_on_the_event_loop(log):
    fail_in_batch(log, 0)
    with pytest.raises(BlockingIOError):
        log.locate(0, 100, wait=False)
    with pytest.raises(DiskError):
        log.locate(0, 100)
    asked = log.disk.asked
    for wait in (True, False):
        with pytest.raises(DiskError):
            log.locate(0, 100, wait=wait)
    assert log.disk.asked == asked
    log.clock.now_s += RETRY_S
    with pytest.raises(BlockingIOError):
        log.locate(0, 100, wait=False)
    with pytest.raises(DiskError):
        log.locate(0, 100)
    assert log.disk.asked > asked


def test_a_disk_that_reads_again_is_believed_by_readers(log):
    fail_in_batch(log, 0, count=2)
    with pytest.raises(DiskError):
        log.locate(0, 100)
    log.disk.bad_to = 0
    log.clock.now_s += RETRY_S
    assert offsets(log, 0) == [0]
    for offset in range(1, 10):
        assert offsets(log, offset)[0] == offset
    assert log.unreadable == ()
    assert offsets(log, 0) == list(range(10))


def test_a_disk_that_reads_again_is_found_out_also_where_nobody_reads(log):
    fail_in_batch(log, 3)
    log.read_unreadable_again()
    assert log.unreadable
    log.disk.bad_to = 0
    log.read_unreadable_again()
    assert log.unreadable  # not again so soon
    log.clock.now_s += RETRY_S
    log.read_unreadable_again()
    assert log.unreadable == ()
    assert offsets(log, 0) == list(range(10))


def test_an_offset_that_cannot_be_found_is_named_until_it_can_be(log):
    log.close()
    log.disk.bad_to = 1 << 20
    with pytest.raises(DiskError):  # the headers behind an index entry
        log.locate(9, 100)
    (place,) = log.unreadable
    assert "Input/output error" in str(place.error())
    log.disk.bad_to = 0
    log.clock.now_s += RETRY_S
    assert offsets(log, 9) == [9]
    assert log.unreadable == ()


def test_a_segment_that_is_gone_is_named(log):
    log.close()
    log.disk.unlink(log._reader.segments[0].path)
    with pytest.raises(DiskError, match="is gone; restore it from a copy"):
        log.locate(0, 100)
    (place,) = log.unreadable
    assert place.path == log._reader.segments[0].path


def test_what_deletion_takes_away_is_no_longer_named(log):
    fail_in_batch(log, 3)
    log.delete_before(10)
    assert log.unreadable == ()


def test_a_failure_while_records_are_sent_from_file_to_socket_is_remembered_too():
    with tempfile.TemporaryDirectory() as folder:
        log = PartitionLog.open(Path(folder) / "0", TopicConfig())
        commit(log, batch(b"x"))
        extent = log.locate(0, 100)
        fd = os.open(folder, os.O_RDONLY)  # a directory: the system refuses to read it
        try:
            with extent, pytest.raises(DiskError, match="cannot be read"):
                extent._fd = fd
                extent.read_into(memoryview(bytearray(100)))
        finally:
            os.close(fd)
        assert log.unreadable
        log.close()


def in_header_of_batch(log, number):
    """Lets the disk fail in the header of one batch of the sealed segment."""
    size = len(batch(b"0" * 500))
    log.disk.bad_from, log.disk.bad_to = number * size, number * size + 10


def without_index(disk, open_log, **config):
    """The log, opened again, of whose first segment nothing is known but its size."""
    log = open_log(disk, segment_bytes=1 << 20, **config)
    disk.unlink(log._reader.segments[0].index_path)
    log.disk, log.clock = disk, Clock()
    log._reader.unreadable = UnreadablePlaces(log.clock)
    return log


SEARCHES = {
    "by time": lambda log: log.offset_for_time(0),
    "by largest time": lambda log: log.largest_timestamp(),
    "backlog": lambda log: log.backlog(0),
    "retention": lambda log: log.apply_retention(now_ms=1 << 40),
}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_whoever_finds_out_that_a_segment_cannot_be_read_says_so(log, search, open_log):
    log.close()
    log = without_index(log.disk, open_log)
    log.disk.bad_to = 1 << 20
    with pytest.raises(DiskError, match=r"00\.log: cannot be read: Input/output error; check the disk"):
        search(log)
    (place,) = log.unreadable
    assert place.path == log._reader.segments[0].path
    for _ in range(2):
        log.clock.now_s += RETRY_S
        log.read_unreadable_again()
        assert log.unreadable
    log.disk.bad_to = 0
    log.clock.now_s += RETRY_S
    log.read_unreadable_again()
    assert log.unreadable == ()
    search(log)


def test_a_header_in_the_segment_being_written_that_a_search_cannot_read_is_named_until_it_can_be(log):
    """Where it stands is known, so that readers need not look at it."""
    active = log._reader.segments[-1]
    commit(log, *[batch(b"%d" % number * 500, timestamp_ms=5000 + number) for number in range(3)])
    log.disk.bad_from, log.disk.bad_to = 0, 1 << 20
    with pytest.raises(DiskError, match="cannot be read"):
        log.offset_for_time(5002)
    for _ in range(2):
        (place,) = log.unreadable
        assert place.path == active.path
        log.clock.now_s += RETRY_S
        log.read_unreadable_again()
    log.disk.bad_to = 0
    log.clock.now_s += RETRY_S
    log.read_unreadable_again()
    assert log.unreadable == ()
    assert log.offset_for_time(5002).offset == 13


@pytest.mark.parametrize("place", ["records", "header", "index"])
def test_compaction_that_cannot_read_names_the_segment_and_leaves_no_draft(open_log, place):
    disk, compacted = BadSectors(), {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.01}
    log = open_log(disk, segment_bytes=1 << 20, **compacted)
    log.disk = disk
    commit(log, *[batch(b"%d" % number * 500, key=b"k") for number in range(10)])
    log.roll()
    if place == "index":
        log.close()
        log = without_index(disk, open_log, **compacted)
        disk.bad_to = 1 << 20
    elif place == "header":
        in_header_of_batch(log, 9)
    else:
        disk.bad_from, disk.bad_to = 1200, 1300
    with pytest.raises(DiskError, match="cannot be read: Input/output error"):
        log.compact(1000)
    assert [bad.path for bad in log.unreadable] == [log._reader.segments[0].path]
    assert not [name for name in disk.list(log.path) if name.endswith(".tmp")]
    disk.bad_to = 0
    assert log.compact(1000) > 0


class BadOnceWriting(BadSectors):
    """Reads until a draft is opened."""

    def open(self, path, *, write=False, create=False):
        if path.name.endswith(".clog.tmp"):
            self.bad_to = 1 << 20
        return super().open(path, write=write, create=create)


def test_compaction_that_cannot_read_on_removes_its_draft(open_log):
    disk = BadOnceWriting()
    log = open_log(disk, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
    commit(log, *[batch(b"%d" % number * 500, key=b"k") for number in range(10)])
    log.roll()
    with pytest.raises(DiskError, match="cannot be read: Input/output error"):
        log.compact(1000)
    assert not [name for name in disk.list(log.path) if name.endswith(".tmp")]
