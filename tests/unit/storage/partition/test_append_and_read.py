import threading

import pytest

from headrace.errors import RequestError
from headrace.records import Codec, decode_batch
from headrace.storage import Disk, Files, PartitionLog, TopicConfig
from headrace.testing.batches import batch, batches_in, commit, read_all


def test_each_batch_gets_the_next_offsets(disk, open_log):
    log = open_log(disk)
    assert log.append(batch(b"a", b"b"), now_ms=1).base_offset == 0
    assert log.append(batch(b"c"), now_ms=1).base_offset == 2
    assert log.end_offset == 3


def test_nothing_is_readable_before_it_is_synced(disk, open_log):
    log = open_log(disk)
    log.append(batch(b"a"), now_ms=1)
    assert log.high_watermark == 0
    assert log.locate(0, 100) is None
    assert log.commit() == 1
    assert [record.value for record in read_all(log)] == [b"a"]


def test_pending_bytes_count_what_is_not_yet_synced(disk, open_log):
    log = open_log(disk)
    first = batch(b"a")
    log.append(first, now_ms=1)
    assert log.pending_bytes == len(first)
    log.commit()
    assert log.pending_bytes == 0


def test_a_commit_with_nothing_queued_touches_no_disk(disk, open_log):
    log = open_log(disk)
    steps = disk.steps
    assert log.commit() == 0
    assert disk.steps == steps


def test_one_commit_writes_and_syncs_once_for_all_that_is_queued(disk, open_log):
    log = open_log(disk)
    commit(log, batch(b"first"), now_ms=5000)  # takes the checkpoint that is due
    before = len(disk.log)
    commit(log, *[batch(b"x") for _ in range(50)], now_ms=5001)
    assert [what.split()[0] for what in disk.log[before:]] == ["write", "sync"]


def test_more_batches_than_one_write_can_take_are_all_written(tmp_path):
    log = PartitionLog.open(tmp_path, TopicConfig(), files=Files(Disk()))
    commit(log, *[batch(b"%d" % n) for n in range(3000)])
    assert [record.value for record in read_all(log, max_bytes=1 << 20)] == [b"%d" % n for n in range(3000)]


def test_short_writes_are_continued(disk, open_log):
    import random

    disk.short_writes = random.Random(1)
    log = open_log(disk)
    commit(log, *[batch(b"value %d" % n) for n in range(40)])
    assert len(read_all(log)) == 40


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_are_kept_as_they_came_but_for_the_stamps(disk, open_log, codec):
    log = open_log(disk)
    sent = batch(*[b"value"] * 50, codec=codec)
    body = bytes(sent[16:])
    commit(log, batch(b"before"), sent)
    assert log.read(1, 1)[16:] == body


def test_a_reader_starts_in_the_midst_of_a_batch_and_gets_it_whole(disk, open_log):
    log = open_log(disk)
    commit(log, batch(b"a", b"b", b"c"))
    assert [record.offset for record in decode_batch(log.read(2, 10))] == [0, 1, 2]


def test_every_offset_is_found_in_every_segment(disk, open_log):
    log = open_log(disk, segment_bytes=1024)
    for number in range(60):
        commit(log, *[batch(b"%d" % number, b"x" * 20)] * 1)
    log.close()
    log = open_log(disk, segment_bytes=1024)
    assert log.segment_count > 5
    for offset in range(120):
        first = next(batches_in(log.read(offset, 1)))[1]
        assert first.base_offset <= offset < first.next_offset


def test_the_first_batch_is_whole_even_if_larger_than_asked_for(disk, open_log):
    log = open_log(disk)
    commit(log, batch(b"x" * 5000), batch(b"y"))
    assert len(decode_batch(log.read(0, 10))) == 1


def test_an_extent_ends_where_asked_and_read_drops_the_cut_batch(disk, open_log):
    commit(open_log(disk), batch(b"a"), batch(b"b"))
    log = open_log(disk.after_kill())  # which knows of the first batch only where it begins
    size = len(log.read(0, 1))
    extent = log.locate(0, size + 10)
    assert extent.size_bytes == size + 10
    extent.release()
    assert len(log.read(0, size + 10)) == size


def test_an_extent_is_read_in_chunks(disk, open_log):
    log = open_log(disk)
    commit(log, *[batch(b"value %d" % n) for n in range(20)])
    with log.locate(0, 1 << 20) as extent:
        pieces = iter(lambda: extent.read_chunk(37, wait=False), b"")
        assert b"".join(pieces) == log.read(0, 1 << 20)


def test_offsets_outside_the_log_are_refused(disk, open_log):
    log = open_log(disk)
    commit(log, batch(b"a"))
    log.append(batch(b"b"), now_ms=1)
    assert log.locate(1, 10) is None
    assert log.locate(2, 10) is None  # appended, not yet synced
    for offset in (-1, 3):
        with pytest.raises(RequestError) as refused:
            log.locate(offset, 10)
        assert refused.value.code == 1


def test_append_time_is_stamped_when_the_topic_says_so(disk, open_log):
    log = open_log(disk, message_timestamp_type="LogAppendTime")
    commit(log, batch(b"a", timestamp_ms=5), now_ms=777)
    assert read_all(log)[0].timestamp_ms == 777


def test_a_segment_is_rolled_before_it_exceeds_its_size(disk, open_log):
    log = open_log(disk, segment_bytes=1024)
    commit(log, *[batch(b"x" * 100) for _ in range(30)])
    sizes = [size for name, size in disk.list(log.path).items() if name.endswith(".log")]
    assert len(sizes) > 3
    assert max(sizes) <= 1024
    assert [record.offset for record in read_all(log)] == list(range(30))


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(disk, open_log):
    log = open_log(disk, segment_bytes=1024)
    commit(log, batch(b"a"), batch(b"x" * 3000), batch(b"b"))
    assert log.segment_count == 3
    assert len(read_all(log)) == 3


def test_an_old_segment_is_rolled_at_the_next_append(disk, open_log):
    log = open_log(disk, segment_ms=1000)
    commit(log, batch(b"a"), now_ms=10_000)
    commit(log, batch(b"b"), now_ms=10_999)
    assert log.segment_count == 1
    commit(log, batch(b"c"), now_ms=11_000)
    assert log.segment_count == 2


def test_the_age_of_a_segment_survives_a_restart(disk, open_log):
    log = open_log(disk, segment_ms=1000)
    commit(log, batch(b"a"), now_ms=10_000)
    log.close()
    log = open_log(disk, segment_ms=1000)
    commit(log, batch(b"c"), now_ms=11_000)
    assert log.segment_count == 2


def test_the_same_bytes_come_from_the_tail_in_memory_and_from_the_index(disk, open_log):
    log = open_log(disk)
    commit(log, *[batch(b"%d" % n) for n in range(100)])
    from_tail = [log.read(offset, 200) for offset in range(100)]
    log.close()
    from_index = [open_log(disk).read(offset, 200) for offset in range(100)]
    assert from_tail == from_index


def test_the_tail_in_memory_stays_bounded(disk, open_log):
    log = open_log(disk)
    for _ in range(5):
        commit(log, *[batch(b"v") for _ in range(4000)])
    assert len(log._reader.tail.offsets) <= 3 * 4096
    assert len(read_all(log, max_bytes=1 << 22)) == 20_000


def test_descriptors_stay_within_their_bound(tmp_path):
    files = Files(Disk(), limit=4)
    log = PartitionLog.open(tmp_path, TopicConfig(segment_bytes=1024), files=files)
    for number in range(200):
        commit(log, batch(b"%d" % number))
    assert log.segment_count > 10
    assert len(read_all(log)) == 200
    assert len(files._idle) <= 4


def test_indexes_in_memory_stay_within_their_bound(disk, open_log):
    files = Files(disk, index_cache_bytes=100)
    log = open_log(disk, files=files, segment_bytes=1024)
    for number in range(200):
        commit(log, batch(b"%d" % number))
    assert [record.offset for record in read_all(log, max_bytes=1)] == list(range(200))
    assert sum(s.index is not None for s in log._reader.segments[:-1]) < 10


def test_readers_and_one_committer_work_at_the_same_time(tmp_path):
    log = PartitionLog.open(tmp_path, TopicConfig(segment_bytes=20_000), files=Files(Disk()))
    total, failures = 600, []

    def follow():
        try:
            offset = 0
            while offset < total:
                data = log.read(offset, 3000)
                for position, header in batches_in(data):
                    assert [r.value for r in decode_batch(data, position)] == [b"%d" % header.base_offset]
                    assert header.base_offset == offset
                    offset = header.next_offset
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=follow) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(total):
        log.append(batch(b"%d" % number), now_ms=number)
        if number % 7 == 0:
            log.commit()
    log.commit()
    for reader in readers:
        reader.join(timeout=60)
    assert not failures


def test_an_extent_ends_between_batches_where_that_is_known(disk, open_log):
    log = open_log(disk, index_interval_bytes=100)
    commit(log, *[batch(b"x" * 100) for _ in range(20)])
    one = len(batch(b"x" * 100))
    for sealed in (False, True):
        if sealed:
            log.roll()
            log = open_log(disk.after_kill(), index_interval_bytes=100)
        for asked, given in [
            (1, 1),
            (one, 1),
            (2 * one - 1, 1),
            (2 * one, 2),
            (5 * one + 7, 5),
            (99 * one, 20),
        ]:
            with log.locate(0, asked) as extent:
                assert extent.size_bytes == given * one, f"{asked} bytes asked for, sealed: {sealed}"


def test_an_extent_of_few_small_batches_is_not_cut_to_one_by_a_sparse_index(disk, open_log):
    log = open_log(disk, index_interval_bytes=4096)
    commit(log, *[batch(b"x" * 100) for _ in range(100)])
    log.roll()
    log = open_log(disk.after_kill(), index_interval_bytes=4096)
    with log.locate(3, 1000) as extent:
        assert extent.size_bytes == 1000
    assert len(read_all(log)) == 100
