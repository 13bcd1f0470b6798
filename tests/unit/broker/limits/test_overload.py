import pytest

from headrace.broker.limits.overload import MOST_THROTTLE_MS, Admission, first_kept, verdict
from headrace.storage import Files, PartitionLog, TopicConfig
from headrace.testing.batches import batch, commit
from headrace.testing.disk import SimulatedDisk


@pytest.mark.parametrize("policy", ["buffer", "block", "drop-oldest", "drop-newest"])
def test_up_to_the_bound_every_policy_takes_everything(policy):
    assert verdict(policy, 100, 100) == Admission()


def test_to_buffer_and_to_drop_the_oldest_take_everything():
    assert verdict("buffer", 10**12, 100) == verdict("drop-oldest", 10**12, 100) == Admission()


def test_to_drop_the_newest_refuses_beyond_the_bound():
    assert verdict("drop-newest", 101, 100) == Admission(accept=False)


def test_to_block_makes_producers_wait_longer_and_longer_and_then_refuses():
    waits = [verdict("block", backlog, 1000).throttle_ms for backlog in (1001, 1200, 1500, 1999)]
    assert waits == [50, 200, 500, 999]
    assert all(verdict("block", backlog, 1000).accept for backlog in (1001, 1999))
    assert verdict("block", 2000, 1000) == Admission(accept=False, throttle_ms=MOST_THROTTLE_MS)


@pytest.fixture
def log(tmp_path):
    log = PartitionLog.open(tmp_path, TopicConfig(segment_bytes=2048), files=Files(SimulatedDisk()))
    for _ in range(50):
        commit(log, batch(b"x" * 100, b"y" * 100, timestamp_ms=4711))
    return log


def test_the_first_kept_offset_begins_the_batches_that_fit(log):
    size = log.size_bytes // 50
    for kept in (0, 1, 7, 50):
        assert first_kept(log, 0, kept * size) == 100 - 2 * kept
        assert first_kept(log, 0, kept * size + size - 1) == 100 - 2 * kept
    assert first_kept(log, 99, 10**9) == 99


def test_a_backlog_is_what_follows_the_batch_a_reader_is_at(log):
    size = log.size_bytes // 50
    assert log.backlog(0) == (50 * size, 4711)
    assert log.backlog(1) == (50 * size, 4711)
    assert log.backlog(98) == log.backlog(99) == (size, 4711)
    assert log.backlog(100) == (0, -1)
    log.delete_before(90)
    assert log.backlog(0) == (5 * size, 4711)
