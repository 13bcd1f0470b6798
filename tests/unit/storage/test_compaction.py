import pytest

from headrace.errors import DiskError
from headrace.records import Record, decode_batch, encode_batch, read_header
from headrace.testing.batches import batch, batches_in, commit, read_all
from headrace.testing.disk import Crash

DAY_MS = 86_400_000
COMPACT = {"cleanup_policy": "compact", "segment_bytes": 1024, "min_cleanable_dirty_ratio": 0.01}


def keyed(log):
    return [(record.offset, record.key, record.value) for record in read_all(log)]


def filled(disk, open_log, pairs, **config):
    """A log of one-record batches, all of them in sealed segments."""
    log = open_log(disk, **{**COMPACT, **config})
    for key, value in pairs:
        commit(log, batch(value, key=key))
    log.roll()
    return log


def test_the_newest_record_of_each_key_stays_at_its_offset(disk, open_log):
    log = filled(disk, open_log, [(b"k%d" % (n % 3), b"v%d" % n) for n in range(50)])
    assert log.compact(1000) > 0
    assert keyed(log) == [(47, b"k2", b"v47"), (48, b"k0", b"v48"), (49, b"k1", b"v49")]
    assert (log.start_offset, log.high_watermark) == (0, 50)


def test_the_segment_being_written_is_left_alone(disk, open_log):
    log = filled(disk, open_log, [(b"k", b"old"), (b"k", b"newer")])
    commit(log, batch(b"a", key=b"k"), batch(b"b", key=b"k"))
    log.compact(1000)
    assert [value for _, _, value in keyed(log)] == [b"newer", b"a", b"b"]


def test_a_batch_loses_single_records_and_keeps_its_place(disk, open_log):
    log = open_log(disk, **COMPACT)
    commit(
        log, encode_batch([Record(0, 5 + n, b"k%d" % n, b"old") for n in range(4)], codec=2, producer_id=9)
    )
    commit(log, encode_batch([Record(0, 9, b"k1", b"new"), Record(0, 9, b"k2", b"new")]))
    log.roll()
    log.compact(1000)
    first = next(batches_in(log.read(0, 1)))[1]
    assert (first.base_offset, first.last_offset_delta, first.record_count) == (0, 3, 2)
    assert (first.producer_id, first.codec) == (9, 2)
    found = [(record.offset, record.timestamp_ms) for record in read_all(log)]
    assert found == [(0, 5), (3, 8), (4, 9), (5, 9)]


def test_records_without_a_key_stay(disk, open_log):
    log = filled(disk, open_log, [(None, b"a"), (b"k", b"1"), (None, b"b"), (b"k", b"2")])
    log.compact(1000)
    assert [value for _, _, value in keyed(log)] == [b"a", b"b", b"2"]


def test_a_tombstone_stays_for_its_time_and_then_goes(disk, open_log):
    log = filled(disk, open_log, [(b"k", b"v"), (b"k", None), (b"other", b"x")], delete_retention_ms=DAY_MS)
    log.compact(1000)
    assert keyed(log) == [(1, b"k", None), (2, b"other", b"x")]
    assert read_all(log)[0].timestamp_ms == 1000  # the batch's horizon does not change the record's time
    log.compact(1000 + DAY_MS - 1)
    assert keyed(log) == [(1, b"k", None), (2, b"other", b"x")]
    log.compact(1000 + DAY_MS)
    assert keyed(log) == [(2, b"other", b"x")]


def test_a_tombstones_time_runs_on_across_a_restart(disk, open_log):
    log = filled(disk, open_log, [(b"k", b"v"), (b"k", None), (b"other", b"x")], delete_retention_ms=DAY_MS)
    log.compact(1000)
    log.close()
    log = open_log(disk, **COMPACT, delete_retention_ms=DAY_MS)
    log.compact(1000 + DAY_MS)
    assert keyed(log) == [(2, b"other", b"x")]


def test_the_newest_sealed_record_stays_so_that_readers_reach_the_end(disk, open_log):
    log = filled(disk, open_log, [(b"k", b"v"), (b"k", None)], delete_retention_ms=0)
    log.compact(1000)
    log.compact(9000)
    assert keyed(log) == [(1, b"k", None)]


def test_small_segments_are_merged(disk, open_log):
    log = filled(disk, open_log, [(b"k%d" % (n % 3), b"x" * 50) for n in range(100)])
    before = log.segment_count
    log.compact(1000)
    commit(log, batch(b"y", key=b"z"))
    log.roll()
    log.compact(2000)
    assert log.segment_count < before / 3
    assert [offset for offset, _, _ in keyed(log)] == [97, 98, 99, 100]


def test_what_was_compacted_is_read_the_same_after_a_restart(disk, open_log):
    log = filled(disk, open_log, [(b"k%d" % (n % 7), b"v%d" % n) for n in range(60)])
    log.compact(1000)
    before = keyed(log)
    for after in (disk.after_power_cut(), disk.after_kill()):
        again = open_log(after, **COMPACT)
        assert keyed(again) == before
        assert again.high_watermark == 60
        assert again.append(batch(b"next", key=b"k"), now_ms=1).base_offset == 60


def test_it_waits_until_enough_is_dirty(disk, open_log):
    log = filled(disk, open_log, [(b"k%d" % n, b"x" * 100) for n in range(30)], min_cleanable_dirty_ratio=0.5)
    log.compact(1000)
    commit(log, batch(b"again", key=b"k1"))
    log.roll()
    assert log.compact(1000) == 0
    assert len(keyed(log)) == 31


def test_with_nothing_to_do_it_writes_nothing(disk, open_log):
    log = filled(disk, open_log, [(b"k%d" % (n % 3), b"v") for n in range(50)])
    log.compact(1000)
    steps = disk.steps
    assert log.compact(2000) == 0
    assert disk.steps == steps


def test_a_topic_that_only_deletes_is_not_compacted(disk, open_log):
    log = filled(disk, open_log, [(b"k", b"1"), (b"k", b"2")], cleanup_policy="delete")
    assert log.compact(1000) == 0
    assert len(keyed(log)) == 2


def test_a_damaged_segment_is_left_as_it_is_and_tombstones_stay_with_it(disk, open_log):
    log = filled(disk, open_log, [(b"k", b"v"), (b"j", b"1")], delete_retention_ms=0)
    first = log._reader.segments[0].path
    for key, value in [(b"k", None), (b"j", b"2"), (b"end", b"x")]:
        commit(log, batch(value, key=key))
    log.roll()
    disk.flip(first, 65)
    log.compact(1000)
    log.compact(9000)
    assert first.name in disk.list(log.path)
    assert [(r.key, r.value) for r in read_all(log, 1)] == [
        (b"j", b"1"),
        (b"k", None),
        (b"j", b"2"),
        (b"end", b"x"),
    ]


def test_a_full_disk_stops_compaction_and_nothing_else(disk, open_log):
    log = filled(disk, open_log, [(b"k%d" % n, b"v%d" % n) for n in range(50)])
    before = keyed(log)
    disk.capacity_bytes = disk.used_bytes() + 20
    with pytest.raises(DiskError) as refused:
        log.compact(1000)
    assert refused.value.full
    disk.capacity_bytes = None
    assert keyed(log) == before
    assert commit(log, batch(b"on", key=b"k")) == 51


def test_a_reader_in_the_midst_of_a_rewritten_segment_reads_it_to_the_end(disk, open_log):
    log = filled(disk, open_log, [(b"k", b"v%d" % n) for n in range(8)])
    whole = log.read(0, 1 << 20)
    with log.locate(0, 1 << 20) as extent:
        log.compact(1000)
        assert extent.read_chunk(1 << 20) == whole


def test_a_crash_at_any_step_leaves_the_newest_of_every_key_and_no_record_twice(disk, open_log):
    pairs = [(b"k%d" % (n % 4), b"v%d" % n) for n in range(30)]
    rehearsal = filled(disk, open_log, pairs)
    start = disk.steps
    rehearsal.compact(1000)
    newest = keyed(rehearsal)
    for step in range(start, disk.steps):
        fresh = type(disk)()
        log = filled(fresh, open_log, pairs)
        fresh.crash_at = step
        with pytest.raises(Crash):
            log.compact(1000)
        for after in (fresh.after_power_cut(), fresh.after_kill()):
            again = open_log(after, **COMPACT)
            found = keyed(again)
            assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
            assert set(newest) <= set(found)
            assert again.high_watermark == 30
            assert again.damage == ()
            again.compact(2000)
            assert keyed(again) == newest


def test_control_batches_stay(disk, open_log):
    log = open_log(disk, **COMPACT)
    marker = encode_batch([Record(0, 1, b"\x00\x00\x00\x01", b"\x00" * 6)], control=True, producer_id=1)
    commit(log, marker, batch(b"1", key=b"k"), batch(b"2", key=b"k"))
    log.roll()
    log.compact(1000)
    data = log.read(0, 1 << 20)
    assert read_header(data).is_control
    assert len(decode_batch(data)) == 1
