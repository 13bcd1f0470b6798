"""What every partition promises, whether its records are on disk or in memory."""

import threading

import pytest

from headrace.errors import DiskError, RequestError
from headrace.records import Codec, decode_batch
from headrace.storage import Files, TopicConfig
from headrace.storage.partition.memory_log import MemoryLog, open_log
from headrace.testing.batches import batch, batches_in, commit, read_all
from headrace.testing.disk import SimulatedDisk


@pytest.fixture(params=["disk", "memory"])
def new_log(request, tmp_path):
    """Makes a partition of either kind, with a topic's settings by field name."""

    def make(**config):
        config = TopicConfig(headrace_storage=request.param, **{"index_interval_bytes": 256, **config})
        log = open_log(tmp_path, config, files=Files(SimulatedDisk()))
        assert isinstance(log, MemoryLog) == (request.param == "memory")
        return log

    return make


def values(log, offset=None):
    return [record.value for record in read_all(log, offset)]


def test_each_batch_gets_the_next_offsets_and_is_served_once_committed(new_log):
    log = new_log()
    log.append(batch(b"a", b"b"), now_ms=1)
    log.append(batch(b"c"), now_ms=1)
    assert (log.end_offset, log.high_watermark, log.locate(0, 100)) == (3, 0, None)
    assert log.commit() == 3
    assert [(r.offset, r.value) for r in read_all(log)] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert log.pending_bytes == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_are_kept_as_they_came_but_for_the_stamps(new_log, codec):
    log = new_log()
    sent = batch(*[b"value"] * 50, codec=codec)
    body = bytes(sent[16:])
    commit(log, batch(b"before"), sent)
    assert log.read(1, 1)[16:] == body


def test_every_offset_is_found_in_every_segment(new_log):
    log = new_log(segment_bytes=1024)
    for number in range(60):
        commit(log, batch(b"%d" % number, b"x" * 20))
    assert log.segment_count > 5
    for offset in range(120):
        first = next(batches_in(log.read(offset, 1)))[1]
        assert first.base_offset <= offset < first.next_offset


def test_an_extent_ends_where_asked_and_is_read_in_chunks(new_log):
    log = new_log()
    commit(log, batch(b"x" * 5000), *[batch(b"value %d" % n) for n in range(20)])
    assert len(decode_batch(log.read(0, 10))) == 1  # the first batch is whole
    with log.locate(1, 1 << 20) as extent:
        pieces = iter(lambda: extent.read_chunk(37, wait=False), b"")
        assert b"".join(pieces) == log.read(1, 1 << 20)
        assert extent.offsets_read == 20
    with log.locate(1, 100) as extent:
        assert 50 <= extent.size_bytes <= 100


def test_offsets_outside_the_log_are_refused(new_log):
    log = new_log()
    commit(log, batch(b"a"), batch(b"b"))
    log.delete_before(1)
    for offset in (0, 3):
        with pytest.raises(RequestError) as refused:
            log.locate(offset, 10)
        assert refused.value.code == 1
    assert log.locate(2, 10) is None


def test_records_are_found_by_time(new_log):
    log = new_log(segment_bytes=1024)
    for number in range(30):
        commit(log, batch(b"x" * 100, timestamp_ms=1000 + 10 * (number % 20)))
    assert log.offset_for_time(1055) == (6, 1060)
    assert log.offset_for_time(9999) is None
    assert log.largest_timestamp() == (19, 1190)


def test_append_time_is_stamped_when_the_topic_says_so(new_log):
    log = new_log(message_timestamp_type="LogAppendTime")
    commit(log, batch(b"a", timestamp_ms=5), now_ms=777)
    assert read_all(log)[0].timestamp_ms == 777


def test_retention_by_age_empties_the_log_and_offsets_go_on(new_log):
    log = new_log(segment_bytes=1024, retention_ms=1000)
    for _ in range(10):
        commit(log, batch(b"x" * 200))
    log.apply_retention(1_000_000)
    assert (log.start_offset, log.high_watermark, log.size_bytes) == (10, 10, 0)
    assert commit(log, batch(b"next")) == 11
    assert values(log) == [b"next"]


def test_compaction_keeps_the_newest_of_each_key(new_log):
    log = new_log(segment_bytes=1024, cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0.0)
    for number in range(40):
        commit(log, batch(b"%d" % number + b"x" * 100, key=b"k%d" % (number % 3)))
    log.roll()
    log.compact(2000)
    kept = read_all(log)
    assert {record.key for record in kept} == {b"k0", b"k1", b"k2"}
    assert kept[-1].offset == 39
    assert len(kept) < 40


def test_a_reader_in_the_midst_of_a_removed_segment_reads_it_to_the_end(new_log):
    log = new_log(segment_bytes=1024)
    for _ in range(10):
        commit(log, batch(b"x" * 200))
    whole = log.read(0, 1 << 20)
    with log.locate(0, 1 << 20) as extent:
        log.delete_before(10)
        assert extent.read_chunk(1 << 20) == whole


def test_nothing_can_be_written_after_close(new_log):
    log = new_log()
    commit(log, batch(b"a"))
    log.close()
    with pytest.raises(DiskError):
        log.append(batch(b"b"), now_ms=1)


def test_readers_and_one_committer_work_at_the_same_time(new_log):
    log = new_log(segment_bytes=20_000)
    total, failures = 1000, []

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
        commit(log, batch(b"%d" % number))
    for reader in readers:
        reader.join(timeout=60)
    assert not failures
