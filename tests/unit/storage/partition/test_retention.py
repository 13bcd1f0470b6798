import contextlib
import random

import pytest

from headrace.errors import CorruptionError, DiskError, RequestError
from headrace.storage.partition.retention import surplus
from headrace.storage.topic_config import TopicConfig
from headrace.testing.batches import batch, commit, read_all
from headrace.testing.disk import Crash, SimulatedDisk


def decide(*segments, now_ms=10_000, **config):
    """How many of the (size, largest timestamp) segments go."""
    as_given = [(size, lambda largest=largest: largest) for size, largest in segments]
    return surplus(as_given, config=TopicConfig(**config), now_ms=now_ms)


def test_nothing_goes_without_limits():
    assert decide((100, 1), (100, 2), (100, 3), retention_ms=-1) == 0


def test_by_size_the_oldest_go_while_the_rest_still_fills_the_limit():
    segments = [(100, 9999)] * 5
    assert decide(*segments, retention_bytes=500) == 0
    assert decide(*segments, retention_bytes=401) == 0
    assert decide(*segments, retention_bytes=400) == 1
    assert decide(*segments, retention_bytes=150) == 3


def test_the_segment_being_written_never_goes():
    assert decide((100, 1), (100, 1), retention_bytes=0, retention_ms=1) == 1


def test_by_age_the_oldest_go_whose_newest_record_is_too_old():
    assert decide((1, 7000), (1, 8000), (1, 9500), (1, 9999), retention_ms=1500) == 2


def test_a_young_segment_protects_the_old_ones_behind_it():
    assert decide((1, 9999), (1, 1), (1, 9999), retention_ms=1000) == 0


def test_a_segment_without_timestamps_does_not_expire():
    assert decide((1, -1), (1, 9999), retention_ms=1000) == 0


def log_of(disk, open_log, count, **config):
    log = open_log(disk, segment_bytes=1024, **config)
    for number in range(count):
        commit(log, batch(b"x" * 200, timestamp_ms=1000 + number))
    return log


def test_retention_by_size_moves_the_log_start_durably(disk, open_log):
    log = log_of(disk, open_log, 40, retention_bytes=3000)
    removed = log.apply_retention(2000)
    assert removed
    assert 3000 <= log.size_bytes < 4100
    assert read_all(log)[0].offset == log.start_offset > 0
    assert not any(path.name in disk.list(log.path) for path in removed)
    again = open_log(disk.after_power_cut())
    assert (again.start_offset, again.high_watermark) == (log.start_offset, 40)


def test_retention_by_age_rolls_an_expired_active_segment_and_empties_the_log(disk, open_log):
    log = log_of(disk, open_log, 10, retention_ms=1000)
    log.apply_retention(1_000_000)
    assert (log.start_offset, log.high_watermark, log.size_bytes) == (10, 10, 0)
    again = open_log(disk.after_power_cut())
    assert (again.start_offset, again.high_watermark) == (10, 10)
    assert again.append(batch(b"next"), now_ms=1).base_offset == 10


def test_retention_makes_room_on_a_disk_without_a_byte_left(disk, open_log):
    log = log_of(disk, open_log, 20, retention_ms=1000)
    sealed = [segment.path for segment in log._reader.segments[:-1]]
    disk.capacity_bytes = disk.used_bytes()
    assert log.apply_retention(1_000_000) == sealed  # the active one can be rolled only now
    assert [record.offset for record in read_all(log)] == list(range(log.start_offset, 20))
    for after in (disk.after_power_cut(), disk.after_kill()):
        again = open_log(after, segment_bytes=1024)
        assert (again.start_offset, again.high_watermark) == (log.start_offset, 20)
    log.apply_retention(1_000_000)
    assert (log.start_offset, log.high_watermark, log.size_bytes) == (20, 20, 0)


def test_whenever_a_crash_ends_retention_on_a_full_disk_the_log_is_whole(disk, open_log):
    log = log_of(disk, open_log, 20, retention_ms=1000)
    begins = [segment.base_offset for segment in log._reader.segments]
    full, first_step = disk.used_bytes(), disk.steps
    log.apply_retention(1_000_000)
    last_step = disk.steps
    assert last_step > first_step
    for step in range(first_step, last_step):
        crashed = SimulatedDisk()
        log = log_of(crashed, open_log, 20, retention_ms=1000)
        crashed.capacity_bytes, crashed.crash_at = full, step
        with contextlib.suppress(Crash):
            log.apply_retention(1_000_000)
        for seed in range(3):
            again = open_log(crashed.after_power_cut(random.Random(seed)), segment_bytes=1024)
            assert again.start_offset in begins, f"step {step}, seed {seed}"
            assert [record.offset for record in read_all(again)] == list(range(again.start_offset, 20))


def test_a_disk_without_a_byte_left_keeps_records_that_are_not_alone_in_their_segment(disk, open_log):
    log = log_of(disk, open_log, 10)
    second = log._reader.segments[1].base_offset
    disk.capacity_bytes = disk.used_bytes()
    with pytest.raises(DiskError, match="No space"):
        log.delete_before(second - 1)
    assert (log.start_offset, len(read_all(log))) == (0, 10)
    assert log.delete_before(second + 1) == second + 1  # for that, the first segment makes room
    assert open_log(disk.after_power_cut(), segment_bytes=1024).start_offset == second + 1


def test_a_compacted_topic_keeps_its_segments(disk, open_log):
    log = log_of(disk, open_log, 10, cleanup_policy="compact", retention_ms=1)
    assert log.apply_retention(1_000_000) == []


def test_delete_before_in_the_midst_of_a_segment_survives_a_restart(disk, open_log):
    log = log_of(disk, open_log, 10)
    assert log.delete_before(5) == 5
    with pytest.raises(RequestError) as refused:
        log.locate(4, 10)
    assert refused.value.code == 1
    for after in (disk.after_power_cut(), disk.after_kill()):
        again = open_log(after, segment_bytes=1024)
        assert again.start_offset == 5
        assert [record.offset for record in read_all(again)] == [5, 6, 7, 8, 9]


def test_delete_before_never_moves_back_nor_beyond_the_end(disk, open_log):
    log = log_of(disk, open_log, 10)
    log.delete_before(5)
    assert log.delete_before(3) == 5
    with pytest.raises(RequestError):
        log.delete_before(11)
    assert log.delete_before(10) == 10
    assert read_all(log) == []


def test_a_reader_in_the_midst_of_a_removed_segment_reads_it_to_the_end(disk, open_log):
    log = log_of(disk, open_log, 10)
    whole = log.read(0, 1 << 20)
    with log.locate(0, 1 << 20) as extent:
        log.delete_before(10)
        assert extent.read_chunk(1 << 20) == whole


def test_a_deletion_that_a_crash_interrupted_is_finished_at_open(disk, open_log):
    log = log_of(disk, open_log, 20)
    disk.crash_at = disk.steps + 4  # the log start is durable, not every file is gone
    with pytest.raises(BaseException, match="at step"):
        log.delete_before(19)
    again = open_log(disk.after_kill(), segment_bytes=1024)
    assert again.start_offset == 19
    assert all(size_of_segment(again, name) for name in again._reader.files.disk.list(again.path))


def size_of_segment(log, name):
    return not name.endswith(".log") or int(name[:20]) >= log._reader.segments[0].base_offset


def test_a_damaged_log_start_is_refused_by_name_and_without_it_the_oldest_segment_counts(disk, open_log):
    log = log_of(disk, open_log, 10)
    log.delete_before(5)
    log.close()
    disk.flip(log.path / "log-start", 22)
    with pytest.raises(CorruptionError, match=r"log-start.*restore it from a copy, or remove it"):
        open_log(disk, segment_bytes=1024)
    disk.unlink(log.path / "log-start")
    assert open_log(disk, segment_bytes=1024).start_offset <= 5
