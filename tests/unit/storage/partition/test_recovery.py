import pytest

from headrace.records import decode_batch
from headrace.testing.batches import batch, commit, read_all

FIRST = "00000000000000000000.log"


def values(log):
    return [record.value for record in read_all(log)]


def test_a_clean_close_leaves_nothing_to_scan(disk, open_log):
    log = open_log(disk)
    commit(log, *[batch(b"%d" % n) for n in range(50)])
    log.close()
    log = open_log(disk)
    assert log.scanned_bytes == 0
    assert len(values(log)) == 50


def test_close_commits_what_is_queued(disk, open_log):
    log = open_log(disk)
    log.append(batch(b"a"), now_ms=1)
    log.close()
    assert values(open_log(disk)) == [b"a"]


def test_an_open_after_a_kill_scans_only_what_follows_the_checkpoint(disk, open_log):
    log = open_log(disk)
    commit(log, *[batch(b"%d" % n) for n in range(50)], now_ms=5000)  # with a checkpoint
    size = log.size_bytes
    commit(log, batch(b"after"), now_ms=5001)  # without
    log = open_log(disk.after_kill())
    assert log.scanned_bytes == log.size_bytes - size
    assert len(values(log)) == 51


def test_without_a_checkpoint_the_newest_segment_is_scanned_and_nothing_is_lost(disk, open_log):
    log = open_log(disk, segment_bytes=1024)
    commit(log, *[batch(b"%d" % n) for n in range(50)])
    log.close()
    disk.unlink(log.path / "checkpoint")
    again = open_log(disk, segment_bytes=1024)
    assert 0 < again.scanned_bytes <= 1024
    assert values(again) == [b"%d" % n for n in range(50)]


@pytest.mark.parametrize("position", [0, 10, 30, 57])
def test_a_damaged_checkpoint_is_not_believed(disk, open_log, position):
    log = open_log(disk)
    commit(log, *[batch(b"%d" % n) for n in range(50)])
    log.close()
    disk.flip(log.path / "checkpoint", position)
    again = open_log(disk)
    assert again.scanned_bytes == again.size_bytes
    assert len(values(again)) == 50


def test_a_damaged_index_of_the_newest_segment_is_rebuilt(disk, open_log):
    log = open_log(disk)
    commit(log, *[batch(b"%d" % n) for n in range(50)])
    log.close()
    disk.flip(log.path / "00000000000000000000.index", 20)
    again = open_log(disk)
    assert again.scanned_bytes == again.size_bytes
    assert len(values(again)) == 50


def unclean(disk, open_log, *batches):
    """A log killed before any checkpoint of these batches; the last one is returned with its position."""
    log = open_log(disk)
    commit(log, *batches[:-1], now_ms=1)
    start = log.size_bytes
    commit(log, batches[-1], now_ms=2)
    return log, start


def test_the_last_batch_cut_at_every_byte_is_dropped_and_reported(disk, open_log):
    log, start = unclean(disk, open_log, batch(b"a"), batch(b"b"), batch(b"last", b"one"))
    whole = log.size_bytes
    last = log.read(2, 1)
    for size in range(start, whole):
        after = disk.after_kill().after_power_cut()
        after.cut(log.path / FIRST, size)
        again = open_log(after)
        assert values(again) == [b"a", b"b"]
        assert again.end_offset == again.high_watermark == 2
        # Zeros alone, with which every batch begins, are not told from those written ahead.
        assert (again.torn is None) == (not any(last[: size - start]))
        assert again.damage == ()
        assert commit(again, batch(b"next")) == 3
        assert values(open_log(after.after_kill())) == [b"a", b"b", b"next"]


def test_the_last_batch_flipped_at_every_byte_is_never_served(disk, open_log):
    log, start = unclean(disk, open_log, batch(b"a"), batch(b"b"), batch(b"last", b"one"))
    for position in range(start, log.size_bytes):
        for mask in (0x01, 0x80):
            after = disk.after_kill().after_power_cut()
            after.flip(log.path / FIRST, position, mask)
            again = open_log(after)
            assert values(again) == [b"a", b"b"]
            assert again.torn is not None
            assert again.torn.start == start


def test_garbage_and_zeros_behind_the_last_batch_are_cut_off(disk, open_log):
    for rubbish in (bytes(10_000), b"\x02" * 500, bytes(range(256)) * 40):
        log = open_log(disk)
        size = log.size_bytes
        commit(log, batch(b"a"))
        fd = disk.open(log.path / FIRST, write=True)
        disk.pwritev(fd, [rubbish], log.size_bytes)
        disk.close(fd)
        log = open_log(disk.after_kill())
        assert values(log)[-1:] == [b"a"]
        assert (log.torn is not None) == any(rubbish)
        assert disk.list(log.path)[FIRST] == log.size_bytes > size
        log.close()


def test_damage_with_valid_batches_behind_it_is_kept_and_reported_not_cut_off(disk, open_log):
    log, _ = unclean(disk, open_log, batch(b"a"), batch(b"bb"), batch(b"c"))
    first, second = len(batch(b"a")), len(batch(b"bb"))
    for position in range(first, first + second):
        after = disk.after_kill().after_power_cut()
        after.flip(log.path / FIRST, position)
        again = open_log(after)
        assert again.high_watermark == 3
        assert again.torn is None
        (damage,) = again.damage
        assert (damage.start, damage.end) == (first, first + second)
        assert (damage.first_offset, damage.next_offset) == (1, 2)
        assert [record.value for record in read_all(again, 2)] == [b"c"]


def test_bytes_that_a_killed_process_left_unsynced_are_synced_before_they_are_served(disk, open_log):
    log = open_log(disk)
    commit(log, batch(b"a"))
    disk.crash_at = disk.steps + 1  # the write happens, the sync does not
    log.append(batch(b"b"), now_ms=2)
    with pytest.raises(BaseException, match="at step"):
        log.commit()
    after = disk.after_kill()
    again = open_log(after)
    assert values(again) == [b"a", b"b"]
    assert values(open_log(after.after_power_cut())) == [b"a", b"b"]


def test_the_next_offset_is_kept_by_the_name_of_an_empty_segment(disk, open_log):
    log = open_log(disk)
    commit(log, batch(b"a", b"b"))
    log.roll()
    log.delete_before(2)
    log.close()
    disk.unlink(log.path / "checkpoint")
    log = open_log(disk)
    assert log.append(batch(b"c"), now_ms=1).base_offset == 2


def test_bytes_lost_below_the_checkpoint_are_reported_and_their_offsets_not_given_again(disk, open_log):
    log = open_log(disk)
    commit(log, batch(b"a"), batch(b"b"), batch(b"c"))
    log.close()
    disk.cut(log.path / FIRST, len(batch(b"a")))
    again = open_log(disk)
    assert again.append(batch(b"d"), now_ms=1).base_offset == 3
    again.commit()
    (damage,) = again.damage
    assert (damage.first_offset, damage.next_offset) == (1, 3)
    assert [record.value for record in read_all(again, 3)] == [b"d"]


def test_the_newest_segment_lost_whole_is_no_reason_to_give_offsets_again(disk, open_log):
    log = open_log(disk, segment_bytes=1024)
    commit(log, *[batch(b"x" * 200) for _ in range(10)])
    log.close()
    names = sorted(name for name in disk.list(log.path) if name.endswith(".log"))
    disk.unlink(log.path / names[-1])
    assert open_log(disk, segment_bytes=1024).append(batch(b"y"), now_ms=1).base_offset == 10


class Watch:
    """What is opened and read of a disk from now on."""

    def __init__(self, disk):
        self.opened, self.read_bytes = [], 0
        opening, reading, reading_whole = disk.open, disk.pread, disk.read_file

        def open_(path, **how):
            self.opened.append(path.name)
            return opening(path, **how)

        def pread(*place):
            return self._count(reading(*place))

        disk.open, disk.pread = open_, pread
        disk.read_file = lambda path: self._count(reading_whole(path))

    def _count(self, data):
        self.read_bytes += len(data)
        return data


def test_thousands_of_segments_are_opened_by_reading_the_unclean_end_only(disk, open_log):
    log = open_log(disk, segment_bytes=1024)
    for first in range(0, 3000, 100):
        commit(log, *[batch(b"%04d" % n + b"x" * 900) for n in range(first, first + 100)])
    assert log.segment_count == 3000

    disk = disk.after_kill()
    watch = Watch(disk)
    log = open_log(disk, segment_bytes=1024)
    assert (log.segment_count, log.high_watermark) == (3000, 3000)
    assert 0 < log.scanned_bytes <= 1024
    assert len(watch.opened) <= 3
    assert watch.read_bytes < 16_384
    assert_one_is_read_in_the_middle(log, watch)
    log.close()

    watch = Watch(disk)
    log = open_log(disk, segment_bytes=1024)
    assert (log.segment_count, log.high_watermark, log.scanned_bytes) == (3000, 3000, 0)
    assert len(watch.opened) <= 2
    assert watch.read_bytes < 16_384
    assert_one_is_read_in_the_middle(log, watch)


def assert_one_is_read_in_the_middle(log, watch):
    opened, read_bytes = len(watch.opened), watch.read_bytes
    (record,) = decode_batch(log.read(1500, 1))
    assert (record.offset, record.value[:4]) == (1500, b"1500")
    assert len(watch.opened) - opened <= 1
    assert watch.read_bytes - read_bytes < 8192
