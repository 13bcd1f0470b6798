"""Zeros written ahead of small appends: there while they help, and never part of the log."""

import random

import pytest

from headrace.errors import DiskError
from headrace.storage import Files
from headrace.storage.segments.zeros_ahead import ZerosPolicy
from headrace.testing.batches import batch, commit, read_all

FIRST = "00000000000000000000.log"
POLICY = ZerosPolicy(small_bytes=500, least_bytes=200, most_bytes=1000)


@pytest.fixture
def open_ahead(open_log):
    return lambda disk, **config: open_log(disk, files=Files(disk, zeros=POLICY), **config)


def values(log):
    return [record.value for record in read_all(log)]


def small(number):
    return batch(b"%4d" % number)


def grown(disk, log, count=5):
    """Appends until the file has zeros; they are there or the test is none."""
    for number in range(count):
        commit(log, small(number))
    assert disk.list(log.path)[FIRST] > log.size_bytes
    return [b"%4d" % number for number in range(count)]


@pytest.mark.parametrize(
    ("end", "appended", "zeros"),
    [(199, 100, 0), (200, 100, 200), (5000, 100, 1000), (5000, 500, 0), (9900, 100, 100), (12_000, 10, 0)],
)
def test_as_many_zeros_as_records_within_bounds_and_only_behind_small_appends(end, appended, zeros):
    assert POLICY.zeros_behind(end, appended_bytes=appended, segment_bytes=10_000) == zeros


def test_appends_go_in_the_place_of_zeros_without_making_the_file_longer(disk, open_ahead):
    log = open_ahead(disk)
    expected = grown(disk, log)
    size = disk.list(log.path)[FIRST]
    commit(log, small(99))
    assert disk.list(log.path)[FIRST] == size
    assert values(log) == [*expected, b"  99"]


def test_nobody_who_waits_for_a_commit_waits_for_zeros(disk, open_ahead):
    log = open_ahead(disk)
    for number in range(3):
        log.append(small(number), now_ms=1000)
        log.commit()
        assert disk.list(log.path)[FIRST] == log.size_bytes
    assert log.chores_due
    log.do_chores()
    assert disk.list(log.path)[FIRST] > log.size_bytes
    assert not log.chores_due
    size = disk.list(log.path)[FIRST]
    assert disk.after_power_cut().list(log.path)[FIRST] == size  # they are synced, too


def test_zeros_that_are_due_are_forgotten_when_a_large_append_comes_first(disk, open_ahead):
    log = open_ahead(disk)
    for content in (b"1" * 100, b"2" * 100, b"x" * 2000):
        log.append(batch(content), now_ms=1000)
        log.commit()
    log.do_chores()
    assert disk.list(log.path)[FIRST] == log.size_bytes


def append_and_commit(log):
    log.append(small(3), now_ms=1000)
    log.commit()


@pytest.mark.parametrize("go_on", [append_and_commit, lambda log: log.roll()], ids=["commit", "roll"])
def test_after_a_failed_sync_of_zeros_nothing_more_is_believed_and_nothing_acknowledged_is_lost(
    disk, open_ahead, go_on
):
    log = open_ahead(disk)
    commit(log, small(0))
    for number in (1, 2):
        log.append(small(number), now_ms=1000)
        log.commit()
    assert log.chores_due
    disk.failing_syncs = 1
    log.do_chores()
    assert disk.failing_syncs == 0
    with pytest.raises(DiskError, match="read-only"):
        go_on(log)
    assert log.failed is not None
    log.close()
    expected = [b"%4d" % number for number in range(3)]
    assert values(open_ahead(disk.after_kill())) == expected
    assert values(open_ahead(disk.after_power_cut())) == expected


def test_zeros_are_neither_counted_nor_read(disk, open_ahead):
    log = open_ahead(disk)
    expected = grown(disk, log)
    assert log.size_bytes == sum(len(small(n)) for n in range(len(expected)))
    assert len(log.read(0, 1 << 20)) == log.size_bytes


def test_a_large_append_writes_no_zeros(disk, open_ahead):
    log = open_ahead(disk)
    commit(log, batch(b"x" * 2000))
    assert disk.list(log.path)[FIRST] == log.size_bytes


def test_a_small_append_behind_a_large_one_writes_none_either(disk, open_ahead):
    log = open_ahead(disk)
    for number in range(3):  # as transactions do: records, and the marker of their end
        commit(log, batch(b"x" * 2000))
        commit(log, small(number))
        assert disk.list(log.path)[FIRST] == log.size_bytes
    commit(log, small(9))
    assert disk.list(log.path)[FIRST] > log.size_bytes


def test_a_roll_and_a_clean_close_cut_the_zeros_off_durably(disk, open_ahead):
    log = open_ahead(disk)
    expected = grown(disk, log)
    size = log.size_bytes
    log.roll()
    assert disk.after_power_cut().list(log.path)[FIRST] == size
    for number in range(5, 10):
        commit(log, small(number))
    log.close()
    second = f"{5:020}.log"
    assert disk.after_power_cut().list(log.path)[second] == 5 * len(small(5))
    again = open_ahead(disk)
    assert again.scanned_bytes == 0
    assert values(again) == [*expected, *(b"%4d" % n for n in range(5, 10))]


def test_after_a_kill_the_zeros_are_cut_off_without_a_word(disk, open_ahead, caplog):
    log = open_ahead(disk)
    expected = grown(disk, log)
    size = log.size_bytes
    after = disk.after_kill()
    again = open_ahead(after)
    assert (again.torn, again.damage, again.size_bytes) == (None, (), size)
    assert after.list(log.path)[FIRST] == size
    assert values(again) == expected
    assert not caplog.records


def test_a_batch_torn_in_the_midst_of_zeros_is_reported_up_to_its_last_byte(disk, open_ahead):
    log = open_ahead(disk)
    expected = grown(disk, log)
    size, torn = log.size_bytes, bytes(small(5))[:40]
    fd = disk.open(log.path / FIRST, write=True)
    disk.pwritev(fd, [torn], size)
    again = open_ahead(disk.after_kill())
    assert (again.torn.start, again.torn.end) == (size, size + len(torn.rstrip(b"\0")))
    assert values(again) == expected


def test_an_append_over_zeros_is_durable_once_it_is_acknowledged(disk, open_ahead):
    log = open_ahead(disk)
    expected = grown(disk, log)
    commit(log, small(99))
    for seed in range(20):
        after = disk.after_power_cut(random.Random(seed))
        assert values(open_ahead(after)) == [*expected, b"  99"]


def test_a_disk_without_room_for_zeros_takes_the_append_without_them(disk, open_ahead):
    log = open_ahead(disk)
    commit(log, small(0), now_ms=5000)  # with the checkpoint and what else is written once
    commit(log, small(1), now_ms=5001)
    disk.capacity_bytes = disk.used_bytes() + 2 * len(small(2)) + 10
    commit(log, small(2), now_ms=5001)
    assert disk.list(log.path)[FIRST] == log.size_bytes
    commit(log, small(3), now_ms=5001)
    log.append(small(4), now_ms=5001)
    with pytest.raises(DiskError) as refused:
        log.commit()
    assert refused.value.full
    disk.capacity_bytes = None
    commit(log, small(4))
    assert values(log) == [b"%4d" % n for n in range(5)]
    assert values(open_ahead(disk.after_power_cut())) == values(log)


def test_a_failed_sync_over_zeros_leaves_what_was_synced_before_it(disk, open_ahead):
    log = open_ahead(disk)
    expected = grown(disk, log)
    disk.failing_syncs = 1
    log.append(small(99), now_ms=1)
    with pytest.raises(DiskError, match="read-only"):
        log.commit()
    log.close()
    assert values(open_ahead(disk.after_kill())) == expected
    assert values(open_ahead(disk.after_power_cut())) == expected


def test_zeros_never_reach_beyond_the_size_of_a_segment(disk, open_ahead):
    log = open_ahead(disk, segment_bytes=1024)
    for number in range(60):
        commit(log, small(number))
        assert max(size for name, size in disk.list(log.path).items() if name.endswith(".log")) <= 1024
    assert values(log) == [b"%4d" % n for n in range(60)]
