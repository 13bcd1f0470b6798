from dataclasses import replace

import pytest

from headrace.errors import DiskError
from headrace.records import HEADER_BYTES, Marker, Record, encode_batch
from headrace.records.batch import seal
from headrace.storage import CompactionLimits
from headrace.storage.compaction.run import read_clean_end
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


# -- memory


def test_with_memory_for_few_keys_several_runs_do_it(disk, open_log):
    pairs = [(b"k%d" % (n % 20), b"v%d" % n) for n in range(100)]
    log = filled(disk, open_log, pairs)
    limits = CompactionLimits(map_bytes=24 * 6, read_bytes=100)
    runs = []
    swap = log._swap
    log._swap = lambda old, new: (runs.append(new.run), swap(old, new))
    log.compact(1000, limits)
    assert len(set(runs)) > 5
    assert keyed(log) == [(n, key, value) for n, (key, value) in enumerate(pairs)][-20:]


def test_a_tombstone_beyond_what_a_run_knows_stays_as_long_as_what_it_deletes(disk, open_log):
    pairs = [(b"gone", b"v"), *((b"k%d" % n, b"v") for n in range(8)), (b"gone", None), (b"other", b"x")]
    log = filled(disk, open_log, pairs, delete_retention_ms=50)
    limits = CompactionLimits(map_bytes=24 * 6, read_bytes=100)
    for run in range(6):  # each as if the one before had been stopped, and its time had passed
        log._compaction(1000 + 50 * run, limits).run(log._swap)
        left = [value for _, key, value in keyed(log) if key == b"gone"]
        assert left in ([b"v", None], [None], [])
    assert [offset for offset, _, _ in keyed(log)] == [*range(1, 9), 10]


def test_a_run_that_reaches_half_a_segment_is_gone_on_with_after_a_restart(disk, open_log):
    pairs = [(b"k%d" % (n % 20), b"v%d" % n) for n in range(100)]
    log = filled(disk, open_log, pairs, segment_bytes=1 << 20)
    limits = CompactionLimits(map_bytes=24 * 8, read_bytes=100)
    outcome = log._compaction(1000, limits).run(log._swap)
    assert not outcome.complete
    assert 0 < read_clean_end(disk, log.path / "clean-end") < 100
    log.close()
    log = open_log(disk, **COMPACT)
    log.compact(1000, limits)
    assert read_clean_end(disk, log.path / "clean-end") == 100
    assert len(keyed(log)) == 20


def test_without_the_note_how_far_it_is_compacted_it_is_compacted_from_its_start(disk, open_log):
    log = filled(disk, open_log, [(b"k%d" % (n % 3), b"v") for n in range(50)])
    log.compact(1000)
    before = keyed(log)
    for spoil in (disk.unlink, lambda path: disk.flip(path, 3)):
        spoil(log.path / "clean-end")
        log.compact(1000)
        assert keyed(log) == before
        assert read_clean_end(disk, log.path / "clean-end") == 50


def test_a_batch_larger_than_what_is_read_ahead_is_compacted(disk, open_log):
    log = open_log(disk, **COMPACT)
    commit(log, encode_batch([Record(0, 1, b"k%d" % n, bytes(300)) for n in range(10)]))
    commit(log, encode_batch([Record(0, 1, b"k%d" % n, bytes(300)) for n in range(9)], codec=4))
    log.roll()
    log.compact(1000, CompactionLimits(read_bytes=64))
    assert [offset for offset, _, _ in keyed(log)] == list(range(9, 19))


def test_a_batch_of_very_many_records_is_compacted(disk, open_log):
    log = open_log(disk, **{**COMPACT, "segment_bytes": 1 << 20})
    for _ in range(2):
        commit(log, encode_batch([Record(0, 1, b"k%d" % (n % 9000), None) for n in range(20_000)], codec=4))
    commit(log, batch(b"x", key=b"end"))
    log.roll()
    log.compact(1000)
    assert [offset for offset, _, _ in keyed(log)] == list(range(31_000, 40_001))


def test_records_that_cannot_be_read_stay_as_they_are(disk, open_log):
    """Such as came before produced batches were looked into."""
    broken = batch(b"value", key=b"k")
    broken[HEADER_BYTES] += 2
    seal(broken, 0)
    log = open_log(disk, **COMPACT)
    commit(log, batch(b"1", key=b"k"), broken, batch(b"2", key=b"k"))
    log.roll()
    log.compact(1000)
    headers = [header for _, header in batches_in(log.read(0, 1 << 20))]
    assert [header.base_offset for header in headers] == [1, 2]


def test_closing_does_not_wait_for_compaction(disk, open_log):
    log = filled(disk, open_log, [(b"k%d" % (n % 3), b"v%d" % n) for n in range(50)])
    log._closing = True
    steps = disk.steps
    assert log.compact(1000) == 0
    assert disk.steps == steps
    assert not any(name.endswith(".tmp") for name in disk.list(log.path))


# -- when


def test_young_records_wait(disk, open_log):
    log = open_log(disk, **COMPACT, min_compaction_lag_ms=500)
    for time_ms in (1000, 1000, 2000, 2000):
        commit(log, batch(b"v", key=b"k", timestamp_ms=time_ms))
        log.roll()
    log.compact(1400)
    assert len(keyed(log)) == 4
    log.compact(1600)
    assert [offset for offset, _, _ in keyed(log)] == [1, 2, 3]
    log.compact(2600)
    assert [offset for offset, _, _ in keyed(log)] == [3]


def test_nothing_waits_longer_than_it_may(disk, open_log):
    config = {**COMPACT, "min_cleanable_dirty_ratio": 1.0, "max_compaction_lag_ms": 5000}
    log = open_log(disk, **config)
    commit(log, *(batch(b"v%d" % n, key=b"k", timestamp_ms=1000) for n in range(5)))
    log.roll()
    log.compact(1000)
    assert len(keyed(log)) == 1
    commit(log, batch(b"again", key=b"k", timestamp_ms=2000), now_ms=2000)
    assert log.compact(6999) == 0
    log.compact(7001)  # rolls what is being written, too
    assert keyed(log) == [(5, b"k", b"again")]


def test_a_tombstone_that_may_not_go_yet_is_no_reason_for_another_run(disk, open_log):
    log = filled(disk, open_log, [(b"k", b"v"), (b"k", None)], delete_retention_ms=0)
    log.compact(1000)
    log.compact(9000)
    steps = disk.steps
    log.compact(10_000)
    assert disk.steps == steps


def test_compacting_and_deleting_go_together(disk, open_log):
    log = open_log(disk, **{**COMPACT, "cleanup_policy": "compact,delete", "retention_ms": 5000})
    for n in range(40):
        commit(log, batch(b"v%d" % n, key=b"k%d" % (n % 4), timestamp_ms=1000 + 100 * n))
    log.roll()
    log.compact(5000)
    assert len(keyed(log)) == 4
    log.apply_retention(10_500)
    assert keyed(log) == []
    assert log.high_watermark == 40


# -- transactions


def transaction(log, producer, *pairs, commit_it=True, sequence=0, end=True):
    """Sends one batch in a transaction and ends it."""
    records = [Record(0, 1, key, value) for key, value in pairs]
    commit(
        log,
        encode_batch(
            records, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True
        ),
    )
    if end:
        log.append_marker(Marker(producer, 0, 0, commit_it), now_ms=1)
        log.commit()


def kinds(log):
    """Of each batch: its base offset, whether it is a marker, and how many records it has."""
    found = batches_in(log.read(0, 1 << 20))
    return [(header.base_offset, header.is_control, header.record_count) for _, header in found]


def test_aborted_records_replace_nothing_and_go(disk, open_log):
    log = open_log(disk, **COMPACT)
    commit(log, batch(b"old", key=b"k"))
    transaction(log, 1, (b"k", b"void"), commit_it=False)
    transaction(log, 1, (b"other", b"x"), sequence=1)
    log.roll()
    log.compact(1000)
    assert [pair for pair in keyed(log) if not pair[1].startswith(b"\0")] == [
        (0, b"k", b"old"),
        (3, b"other", b"x"),
    ]


def test_a_marker_goes_after_its_transactions_records_and_its_time(disk, open_log):
    log = open_log(disk, **COMPACT, delete_retention_ms=DAY_MS)
    transaction(log, 1, (b"k", b"1"))
    transaction(log, 2, (b"j", b"1"))
    transaction(log, 1, (b"k", b"2"), sequence=1)
    commit(log, batch(b"x", key=b"end"))
    log.roll()
    log.compact(1000)
    assert kinds(log) == [
        (1, True, 1),
        (2, False, 1),
        (3, True, 1),
        (4, False, 1),
        (5, True, 1),
        (6, False, 1),
    ]
    log.configure(replace(log.config, min_cleanable_dirty_ratio=0.0))
    commit(log, batch(b"x", key=b"end"))
    log.roll()
    log.compact(1000)  # nothing is left of the first: its marker's time begins
    assert kinds(log)[0] == (1, True, 1)
    log.compact(1000 + DAY_MS)
    assert kinds(log) == [(2, False, 1), (3, True, 1), (4, False, 1), (5, True, 1), (7, False, 1)]


def test_a_producers_last_batch_stays_without_its_records_and_so_does_its_marker(disk, open_log):
    log = open_log(disk, **COMPACT, delete_retention_ms=0)
    transaction(log, 1, (b"k", b"1"))
    commit(log, batch(b"2", key=b"k"), batch(b"x", key=b"end"))
    log.roll()
    for now_ms in (1000, 2000, 3000):
        log.compact(now_ms)
    assert kinds(log) == [(0, False, 0), (1, True, 1), (2, False, 1), (3, False, 1)]
    for name in ("producers", "producers-0", "producers-1"):
        if disk.exists(log.path / name):
            disk.unlink(log.path / name)
    log = open_log(disk.after_kill(), **COMPACT)
    assert log.open_transactions() == []
    assert [state.last_sequence for state in log.producers()] == [0]


def test_a_marker_that_alone_tells_of_its_producer_stays(disk, open_log):
    log = open_log(disk, **COMPACT, delete_retention_ms=0)
    log.append_marker(Marker(9, 4, 0, commit=True), now_ms=1)
    commit(log, batch(b"x", key=b"end"))
    log.roll()
    for now_ms in (1000, 2000, 3000):
        log.compact(now_ms)
    assert kinds(log)[0] == (0, True, 1)


def test_what_is_behind_an_open_transaction_is_left_alone(disk, open_log):
    log = filled(disk, open_log, [(b"k", b"1"), (b"k", b"2")])
    transaction(log, 1, (b"k", b"3"), end=False)
    log.roll()
    commit(log, batch(b"4", key=b"k"))
    log.roll()
    log.compact(1000)
    assert [offset for offset, _, _ in keyed(log)] == [1, 2, 3]
