"""One batch that is written and synced by whoever has it, in place of an append and a commit."""

import errno
import os
import sys

import pytest

from headrace.errors import DiskError
from headrace.records import Record, encode_batch, stamp
from headrace.storage import Disk, Files, PartitionLog, QueuedBatch, TopicConfig
from headrace.storage.disk.disk import SyncFailed
from headrace.testing.batches import batch, commit, read_all
from headrace.testing.disk import SimulatedDisk

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere batches are always appended")
NOW_MS = 1000


@pytest.fixture
def log(tmp_path):
    return PartitionLog.open(tmp_path / "log")


def write_alone(log, *values):
    """As a caller does it; the offset behind it."""
    octets = batch(*values)
    lone = log.begin_direct_append(len(values), len(octets), NOW_MS)
    assert lone is not None
    stamp(octets, 0, lone.base_offset, 0)
    assert os.pwrite(lone.fd, octets, lone.position) == len(octets)
    os.fdatasync(lone.fd)
    end = lone.base_offset + len(values)
    log.end_direct_append(QueuedBatch(octets, lone.base_offset, end, NOW_MS, NOW_MS, None), sync_s=0.1)
    return end


def test_it_is_read_and_recovered_as_if_it_had_been_appended(log):
    commit(log, batch(b"a"))
    assert write_alone(log, b"b", b"c") == 3
    commit(log, batch(b"d"))
    assert write_alone(log, b"e") == 5
    assert (log.end_offset, log.high_watermark, log.last_stable_offset) == (5, 5, 5)
    values = [record.value for record in read_all(log)]
    assert values == [b"a", b"b", b"c", b"d", b"e"]
    again = PartitionLog.open(log.path)
    assert again.torn is None
    assert [record.value for record in read_all(again)] == values
    assert again.largest_timestamp() == log.largest_timestamp()


def test_each_sync_is_told_of(tmp_path):
    told = []
    write_alone(PartitionLog.open(tmp_path / "log", files=Files(Disk(), on_sync=told.append)), b"a")
    assert told == [0.1]


def test_what_was_not_done_leaves_everything_as_it_was(log):
    commit(log, batch(b"a"))
    assert log.begin_direct_append(1, 100, NOW_MS) is not None
    log.end_direct_append(None)
    assert (log.end_offset, log.high_watermark) == (1, 1)
    assert write_alone(log, b"b") == 2


def test_nothing_is_written_alone_while_something_is_queued(log):
    log.append(batch(b"a"), now_ms=NOW_MS)
    assert log.begin_direct_append(1, 100, NOW_MS) is None
    log.commit()
    assert write_alone(log, b"b") == 2


def test_nothing_is_written_alone_behind_an_open_transaction(log):
    of_a_transaction = encode_batch(
        [Record(0, NOW_MS, None, b"x")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    commit(log, of_a_transaction)
    assert log.begin_direct_append(1, 100, NOW_MS) is None


def test_nothing_is_written_alone_beside_another_writer_nor_by_two(log):
    assert log.begin_direct_append(1, 100, NOW_MS) is not None
    assert log.begin_direct_append(1, 100, NOW_MS) is None
    log.end_direct_append(None)
    assert write_alone(log, b"a") == 1


def test_a_segment_that_is_full_or_old_is_rolled_by_an_append(tmp_path):
    log = PartitionLog.open(tmp_path / "log", TopicConfig(segment_bytes=200, segment_ms=5000))
    commit(log, batch(b"a"), now_ms=NOW_MS)
    assert log.begin_direct_append(1, 200, NOW_MS) is None
    assert log.begin_direct_append(1, 70, NOW_MS + 5000) is None
    assert log.begin_direct_append(1, 70, NOW_MS + 4999) is not None
    log.end_direct_append(None)


def test_nothing_is_written_alone_past_a_disk_that_is_not_the_systems_own(tmp_path):
    log = PartitionLog.open(tmp_path / "log", files=Files(SimulatedDisk()))
    assert log.begin_direct_append(1, 100, NOW_MS) is None


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "full"), True),
        (OSError(errno.EIO, "broken"), False),
        (SyncFailed(errno.ENOSPC, "full"), False),
    ],
)
def test_what_the_disk_refused_is_undone_and_counts_as_ever(log, error, full):
    commit(log, batch(b"a"))
    lone = log.begin_direct_append(1, 4, NOW_MS)
    os.pwrite(lone.fd, b"torn", lone.position)
    size = os.fstat(lone.fd).st_size
    with pytest.raises(DiskError) as raised:
        log.end_direct_append(None, error=error)
    assert raised.value.full == full
    assert (log.failed is None) == full
    assert next(log.path.glob("*.log")).stat().st_size == size - 4
    assert [record.value for record in read_all(log)] == [b"a"]
    assert log.begin_direct_append(1, 100, NOW_MS) is None
    if full:
        commit(log, batch(b"b"))
        assert write_alone(log, b"c") == 3
