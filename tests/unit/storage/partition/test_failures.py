"""What happens when the disk refuses: full, or a failed sync."""

import errno
import random
import threading

import pytest

from headrace.errors import DiskError
from headrace.testing.batches import batch, commit, read_all


def fill(disk, spare=0):
    disk.capacity_bytes = disk.used_bytes() + spare


def test_a_full_disk_drops_what_was_queued_and_keeps_what_was_acknowledged(disk, open_log):
    log = open_log(disk)
    commit(log, batch(b"a"))
    fill(disk, spare=10)
    log.append(batch(b"b" * 100), now_ms=2)
    with pytest.raises(DiskError, match="free space") as refused:
        log.commit()
    assert refused.value.full
    assert (log.high_watermark, log.pending_bytes, log.failed) == (1, 0, None)
    assert [record.value for record in read_all(log)] == [b"a"]


def test_once_there_is_room_again_appends_succeed_at_the_same_offsets(disk, open_log):
    log = open_log(disk)
    commit(log, batch(b"a"))
    fill(disk, spare=10)
    log.append(batch(b"b" * 100), now_ms=2)
    with pytest.raises(DiskError):
        log.commit()
    disk.capacity_bytes = None
    assert log.append(batch(b"c"), now_ms=3).base_offset == 1
    assert log.commit() == 2
    assert [record.value for record in read_all(log)] == [b"a", b"c"]
    assert [record.value for record in read_all(open_log(disk.after_power_cut()))] == [b"a", b"c"]


def test_what_a_full_disk_refused_does_not_come_back_after_a_power_cut(disk, open_log):
    log = open_log(disk)
    fill(disk, spare=len(batch(b"fits")))
    log.append(batch(b"fits"), now_ms=1)
    log.append(batch(b"does not"), now_ms=1)
    with pytest.raises(DiskError):
        log.commit()
    for seed in range(20):
        assert open_log(disk.after_power_cut(random.Random(seed))).high_watermark == 0


def test_a_disk_that_is_full_at_the_roll_keeps_what_was_synced_before_it(disk, open_log):
    log = open_log(disk, segment_bytes=1024)
    commit(log, batch(b"a"), now_ms=5000)
    fill(disk, spare=900)
    for number in range(6):
        log.append(batch(b"%d" % number * 200), now_ms=5001)
    with pytest.raises(DiskError) as refused:
        log.commit()
    assert refused.value.full
    synced = log.high_watermark
    assert 1 < synced < 7
    disk.capacity_bytes = None
    commit(log, batch(b"later"))
    assert [record.offset for record in read_all(log)] == list(range(synced + 1))
    assert [record.offset for record in read_all(open_log(disk.after_power_cut()))] == list(range(synced + 1))


@pytest.mark.parametrize("reason", [errno.EIO, errno.ENOSPC])
def test_after_a_failed_sync_the_log_is_read_only_whatever_the_reason(disk, open_log, reason):
    log = open_log(disk)
    commit(log, batch(b"a"))
    disk.sync_errno = reason
    disk.failing_syncs = 1
    log.append(batch(b"b"), now_ms=2)
    with pytest.raises(DiskError, match="read-only") as refused:
        log.commit()
    assert not refused.value.full
    assert log.failed is not None
    for attempt in (lambda: log.append(batch(b"c"), now_ms=3), log.commit, log.roll):
        with pytest.raises(DiskError, match="read-only"):
            attempt()
    assert [record.value for record in read_all(log)] == [b"a"]


def test_what_a_failed_sync_may_have_lost_does_not_reappear_at_the_restart(disk, open_log):
    log = open_log(disk)
    commit(log, batch(b"a"))
    disk.failing_syncs = 1
    log.append(batch(b"b"), now_ms=2)
    with pytest.raises(DiskError):
        log.commit()
    log.close()
    again = open_log(disk.after_kill())
    assert [record.value for record in read_all(again)] == [b"a"]
    assert commit(again, batch(b"c")) == 2


def test_a_failed_write_for_another_reason_makes_the_log_read_only(disk, open_log):
    log = open_log(disk)

    def refuse(*_):
        raise OSError(errno.EIO, "input/output error")

    log.append(batch(b"a"), now_ms=1)
    disk.pwritev = refuse
    with pytest.raises(DiskError, match="read-only"):
        log.commit()
    assert log.failed is not None


def test_acknowledged_tells_synced_from_waiting(disk, open_log):
    log = open_log(disk)
    log.append(batch(b"a"), now_ms=1)
    assert not log.acknowledged(0, log.generation)
    log.commit()
    assert log.acknowledged(0, log.generation)


def test_a_later_batch_at_the_same_offset_does_not_acknowledge_the_one_that_was_dropped(disk, open_log):
    log = open_log(disk)
    fill(disk)
    dropped = log.append(batch(b"dropped"), now_ms=1).last_offset, log.generation
    with pytest.raises(DiskError):
        log.commit()
    disk.capacity_bytes = None
    later = log.append(batch(b"later"), now_ms=2).last_offset, log.generation
    log.commit()
    assert dropped[0] == later[0] == 0
    assert log.acknowledged(*later)
    with pytest.raises(DiskError):
        log.acknowledged(*dropped)


def test_what_was_synced_before_the_failure_counts_as_acknowledged(disk, open_log):
    log = open_log(disk, segment_bytes=1024)
    fill(disk, spare=1400)
    tickets = [(log.append(batch(b"x" * 300), now_ms=1).last_offset, log.generation) for _ in range(6)]
    with pytest.raises(DiskError):
        log.commit()
    disk.capacity_bytes = None
    log.append(batch(b"next generation"), now_ms=2)
    synced = [ticket for ticket in tickets if ticket[0] < log.high_watermark]
    assert 0 < len(synced) < 6
    assert all(log.acknowledged(*ticket) for ticket in synced)
    for ticket in tickets[len(synced) :]:
        with pytest.raises(DiskError):
            log.acknowledged(*ticket)


def test_a_batch_appended_while_a_failing_commit_runs_fails_with_it(disk, open_log):
    log = open_log(disk)
    log.append(batch(b"first"), now_ms=1)
    writing, go_on = threading.Event(), threading.Event()

    def refuse(*_):
        writing.set()
        go_on.wait(60)
        raise OSError(errno.ENOSPC, "no space left")

    disk.pwritev, original = refuse, disk.pwritev
    outcome = []
    worker = threading.Thread(target=lambda: outcome.append(_error_of(log.commit)))
    worker.start()
    assert writing.wait(60)
    meanwhile = log.append(batch(b"meanwhile"), now_ms=2).last_offset, log.generation
    go_on.set()
    worker.join(60)
    disk.pwritev = original
    assert outcome[0].full
    with pytest.raises(DiskError):
        log.commit()  # nothing of that generation may be committed any more
    assert log.append(batch(b"after"), now_ms=3).base_offset == 0
    assert log.commit() == 1
    with pytest.raises(DiskError):
        log.acknowledged(*meanwhile)
    assert [record.value for record in read_all(log)] == [b"after"]


def _error_of(call):
    try:
        return call()
    except DiskError as error:
        return error


def test_an_outcome_too_old_to_be_remembered_counts_as_failed(disk, open_log):
    log = open_log(disk)
    commit(log, batch(b"a"))
    old = 0, log.generation
    fill(disk)
    for _ in range(100):
        log.append(batch(b"x"), now_ms=1)
        with pytest.raises(DiskError):
            log.commit()
    with pytest.raises(DiskError, match="send it again"):
        log.acknowledged(*old)
    assert len(log._appends._outcomes) <= 65


def test_a_roll_that_finds_no_space_leaves_what_is_queued_to_the_next_commit(disk, open_log):
    log = open_log(disk, retention_ms=10)
    commit(log, batch(b"a", timestamp_ms=1))
    ticket = log.append(batch(b"queued"), now_ms=1).last_offset, log.generation
    fill(disk)
    with pytest.raises(DiskError) as refused:
        log.apply_retention(10_000)  # the active segment has expired: it is rolled first
    assert refused.value.full
    disk.capacity_bytes = None
    log.append(batch(b"later"), now_ms=2)
    assert log.commit() == 3
    assert log.acknowledged(*ticket)
    assert [record.value for record in read_all(log)] == [b"a", b"queued", b"later"]


def test_a_log_is_closed_in_peace_after_a_full_disk(disk, open_log):
    log = open_log(disk)
    commit(log, batch(b"a"))
    fill(disk)
    log.append(batch(b"b"), now_ms=1)
    with pytest.raises(DiskError):
        log.commit()
    log.close()
    assert open_log(disk).high_watermark == 1


def test_a_checkpoint_that_cannot_be_written_harms_nothing(disk, open_log, monkeypatch):
    log = open_log(disk)
    commit(log, batch(b"a"), now_ms=1)
    original = disk.open

    def refuse(path, **how):
        if path.name == "checkpoint":
            raise OSError(errno.ENOSPC, "no space left")
        return original(path, **how)

    monkeypatch.setattr(disk, "open", refuse)
    assert commit(log, batch(b"b"), now_ms=9999) == 2
    monkeypatch.undo()
    assert len(read_all(open_log(disk.after_power_cut()))) == 2
