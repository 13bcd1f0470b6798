"""Flipped bits in base offsets of compacted segments, where no neighbour tells what is right."""

import pytest

from headrace.errors import CorruptionError
from headrace.records import decode_batch
from headrace.storage.segments.index import INDEX_VERSION, CheckedIndex, SparseIndex, load_sealed
from headrace.testing.batches import batch, batches_in, commit, read_all

COMPACT = {
    "cleanup_policy": "compact",
    "segment_bytes": 1 << 20,
    "min_cleanable_dirty_ratio": 0.01,
    "index_interval_bytes": 400,
}
KEPT = list(range(0, 40, 3))


@pytest.fixture
def compacted(disk, open_log):
    """Of 40 batches every third is left, some five to an entry of the index."""
    log = open_log(disk, **COMPACT)
    for number in range(40):
        commit(log, batch(b"v%d" % number, key=b"k%d" % number if number % 3 == 0 else b"other"))
    commit(log, batch(None, key=b"other"))
    log.roll()
    assert log.compact(1 << 40) > 0
    log.close()
    return disk


def segment_of(log):
    (segment,) = [each for each in log._reader.segments if each.compacted]
    return segment


def readable(log):
    """Offset and value of what a patient reader gets, stepping over damage."""
    found, offset = [], 0
    while offset < log.high_watermark:
        try:
            records = read_all_from(log, offset)
        except CorruptionError:
            offset = min(each.next_offset for each in log.damage if each.next_offset > offset)
            continue
        found += [(each.offset, each.value) for each in records]
        offset = records[-1].offset + 1 if records else log.high_watermark
    return [each for each in found if each[1] is not None]


def read_all_from(log, offset):
    data = log.read(offset, 300)
    return [record for position, _ in batches_in(data) for record in decode_batch(data, position)]


def test_every_flipped_bit_of_a_base_offset_is_damage_and_nothing_is_served_as_another_offset(
    compacted, open_log
):
    log = open_log(compacted, **COMPACT)
    right = readable(log)
    assert [offset for offset, _ in right] == KEPT
    path = segment_of(log).path
    starts = [position for position, _ in batches_in(compacted.read_file(path))]
    log.close()
    for start in starts:
        for position in range(start, start + 8):
            for bit in range(8):
                flipped = compacted.after_power_cut()
                flipped.flip(path, position, 1 << bit)
                log = open_log(flipped, **COMPACT)
                found = readable(log)
                assert set(found) <= set(right), (start, position, bit)
                named = {n for each in log.damage for n in range(each.first_offset, each.next_offset)}
                assert {offset for offset, _ in right} - {offset for offset, _ in found} <= named
                assert [each.path for each in log.damage] == [path]
                assert len(found) >= len(right) - 6, "one stretch of the index, not the whole segment"


def test_without_its_index_a_segment_with_a_flipped_base_offset_is_damage_as_a_whole(compacted, open_log):
    log = open_log(compacted, **COMPACT)
    right, segment = readable(log), segment_of(log)
    path, end = segment.path, segment.next_offset
    starts = [position for position, _ in batches_in(compacted.read_file(path))]
    log.close()
    compacted.unlink(segment.index_path)
    compacted.sync_directory(path.parent)
    for start in starts[1:]:
        for bit in range(8):
            flipped = compacted.after_power_cut()
            flipped.flip(path, start + 7, 1 << bit)
            for _ in range(2):  # and once more after a restart
                log = open_log(flipped, **COMPACT)
                assert set(readable(log)) <= set(right), (start, bit)
                assert {offset for offset, _ in right if offset < end}.isdisjoint(dict(readable(log)))
                assert {each.path for each in log.damage} == {path}
                log.close()
            flipped.unlink(path.parent / "damage")  # what was found is found again
            log = open_log(flipped, **COMPACT)
            assert set(readable(log)) <= set(right), (start, bit)
            log.close()


def test_the_checksum_of_all_base_offsets_goes_with_its_segment(compacted, open_log):
    log = open_log(compacted, **COMPACT)
    kept = segment_of(log).offsets_path
    assert compacted.exists(kept)
    for number in range(10):
        commit(log, batch(b"later", key=b"k%d" % (3 * number)))
    log.roll()
    assert log.compact(1 << 41) > 0
    now = segment_of(log).offsets_path
    assert now != kept and compacted.exists(now) and not compacted.exists(kept)
    log.close()
    compacted.replace_file(kept, b"left by a crash")
    open_log(compacted, **COMPACT)
    assert not compacted.exists(kept)


def test_a_damaged_checksum_of_all_base_offsets_harms_nobody(compacted, open_log, caplog):
    log = open_log(compacted, **COMPACT)
    right, segment = readable(log), segment_of(log)
    log.close()
    compacted.unlink(segment.index_path)
    compacted.flip(segment.offsets_path, 3)
    log = open_log(compacted, **COMPACT)
    assert readable(log) == right and not log.damage
    assert "the base offsets are not compared" in caplog.text


def test_a_search_by_time_meets_no_batch_at_another_offset(compacted, open_log):
    log = open_log(compacted, **COMPACT)
    path = segment_of(log).path
    starts = [position for position, _ in batches_in(compacted.read_file(path))]
    log.close()
    compacted.flip(path, starts[0] + 7, 1)
    log = open_log(compacted, **COMPACT)
    assert log.offset_for_time(0).offset in KEPT
    assert log.damage


def test_compaction_copies_no_offset_that_is_wrong(compacted, open_log):
    log = open_log(compacted, **COMPACT)
    path = segment_of(log).path
    starts = [position for position, _ in batches_in(compacted.read_file(path))]
    log.close()
    compacted.flip(path, starts[3] + 7, 1)
    log = open_log(compacted, **COMPACT)
    for number in range(10):
        commit(log, batch(b"later", key=b"k%d" % (3 * number)))
    log.roll()
    log.compact(1 << 41)
    assert [each.path for each in log.damage] == [path]
    assert path in [each.path for each in log._reader.segments], "what is damaged is left as it is"
    assert {offset for offset, _ in readable(log)} <= {*KEPT, *range(41, 51)}


def test_offsets_are_compared_on_a_thread_and_once(compacted, open_log):
    log = open_log(compacted, **COMPACT)
    log.read(0, 1)  # the index is in memory
    with pytest.raises(BlockingIOError):
        log.locate(30, 100, wait=False)
    log.read(30, 100)
    with log.locate(30, 100, wait=False) as extent:
        assert extent.size_bytes


def test_the_index_of_an_earlier_version_is_made_anew_with_checks(compacted, open_log):
    log = open_log(compacted, **COMPACT)
    right, segment = readable(log), segment_of(log)
    index = segment.index
    earlier = SparseIndex(index.base_offset, index.interval_bytes)
    earlier.entries, earlier.largest_timestamp = index.entries, index.largest_timestamp
    data = earlier.sealed_bytes(next_offset=segment.next_offset, segment_bytes=segment.size_bytes)
    assert data[4:6] == INDEX_VERSION.to_bytes(2, "big")
    log.close()
    compacted.replace_file(segment.index_path, data)
    log = open_log(compacted, **COMPACT)
    assert readable(log) == right
    assert log.damage == ()
    log.close()
    again = load_sealed(
        compacted.read_file(segment.index_path),
        base_offset=segment.base_offset,
        segment_bytes=segment.size_bytes,
        interval_bytes=400,
        compacted=True,
    )
    assert isinstance(again, CheckedIndex)
    assert again.checks == index.checks


def test_a_segment_whose_index_is_gone_is_served_as_it_is(compacted, open_log):
    log = open_log(compacted, **COMPACT)
    right, segment = readable(log), segment_of(log)
    log.close()
    compacted.unlink(segment.index_path)
    log = open_log(compacted, **COMPACT)
    assert readable(log) == right
    assert read_all(log)
