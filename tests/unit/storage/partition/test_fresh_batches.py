"""What the last commit made readable is at hand for those who wait for it."""

from pathlib import Path

import pytest

from headrace.errors import DiskError
from headrace.records import Marker, Record, encode_batch
from headrace.storage import Files, PartitionLog
from headrace.storage.partition.fresh_batches import MOST_BYTES
from headrace.testing.batches import batch, commit
from headrace.testing.disk import SimulatedDisk


@pytest.fixture
def log(tmp_path):
    return PartitionLog.open(tmp_path / "log")


def of_a_producer(*, transactional):
    return encode_batch(
        [Record(0, 1000, None, b"x")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
    )


def test_it_is_what_is_read_from_the_file_and_is_taken_once(log):
    commit(log, batch(b"before"))
    commit(log, batch(b"a"), batch(b"b", b"c"))
    newest = log.take_fresh_batches()
    assert (newest.base_offset, newest.next_offset) == (1, 4)
    assert newest.octets == log.read(1, 4096)
    assert log.take_fresh_batches() is None


def test_only_the_last_commit_counts_and_it_can_be_let_go(log):
    commit(log, batch(b"a"))
    commit(log, batch(b"b"))
    assert log.take_fresh_batches().base_offset == 1
    commit(log, batch(b"c"))
    assert log.take_fresh_batches(wanted=False) is None
    assert log.take_fresh_batches() is None


def test_much_is_not_kept_and_nothing_of_what_came_before(log):
    commit(log, batch(b"a"))
    commit(log, batch(bytes(MOST_BYTES)))
    assert log.take_fresh_batches() is None


def test_an_idempotent_batch_is_at_hand_but_nothing_of_transactions(log):
    commit(log, of_a_producer(transactional=False))
    assert log.take_fresh_batches() is not None
    other = PartitionLog.open(log.path.with_name("other"))
    commit(other, of_a_producer(transactional=True), batch(b"beside it"))
    assert other.take_fresh_batches() is None
    other.append_marker(Marker(7, 0, coordinator_epoch=0, commit=True), now_ms=1000)
    other.commit()
    assert other.take_fresh_batches() is None


def test_what_was_refused_is_not_at_hand():
    disk = SimulatedDisk()
    log = PartitionLog.open(Path("log"), files=Files(disk))
    commit(log, batch(b"a"))
    log.take_fresh_batches()
    disk.failing_syncs = 1
    log.append(batch(b"lost"), now_ms=1000)
    with pytest.raises(DiskError, match="read-only"):
        log.commit()
    assert log.take_fresh_batches() is None
