from headrace.records import Record, encode_batch
from headrace.testing.batches import batch, commit


def test_the_first_record_at_or_after_a_time_is_found_in_any_segment(disk, open_log):
    log = open_log(disk, segment_bytes=1024)
    for number in range(100):
        commit(log, batch(b"x" * 30, timestamp_ms=1000 + 10 * number))
    for log_now in (log, reopened(disk, open_log, log)):
        for number in range(100):
            for timestamp_ms in (1000 + 10 * number, 1000 + 10 * number - 9):
                found = log_now.offset_for_time(timestamp_ms)
                assert found == (number, 1000 + 10 * number)
        assert log_now.offset_for_time(1991) is None
        assert log_now.largest_timestamp() == (99, 1990)


def reopened(disk, open_log, log):
    log.close()
    return open_log(disk, segment_bytes=1024)


def test_the_record_within_a_batch_is_exact_also_when_compressed(disk, open_log):
    log = open_log(disk)
    for codec in range(5):
        first = 100 * codec
        records = [Record(0, first + 10 * n, b"k", b"v") for n in range(10)]
        commit(log, encode_batch(records, codec=codec))
        assert log.offset_for_time(first + 31) == (10 * codec + 4, first + 40)


def test_with_times_out_of_order_the_first_by_offset_wins(disk, open_log):
    log = open_log(disk)
    commit(log, *[batch(b"v", timestamp_ms=t) for t in (50, 10, 90, 20, 90)])
    assert log.offset_for_time(15) == (0, 50)
    assert log.offset_for_time(60) == (2, 90)
    assert log.largest_timestamp() == (2, 90)


def test_an_empty_log_has_no_times(disk, open_log):
    log = open_log(disk)
    assert log.offset_for_time(0) is None
    assert log.largest_timestamp() is None


def test_deleted_records_do_not_count(disk, open_log):
    log = open_log(disk)
    records = [Record(0, t, None, b"v") for t in (90, 50, 70)]
    commit(log, encode_batch(records), batch(b"v", timestamp_ms=60))
    log.delete_before(1)
    assert log.offset_for_time(0) == (1, 50)
    assert log.offset_for_time(80) is None
    assert log.largest_timestamp() == (2, 70)


def test_what_is_not_synced_does_not_count(disk, open_log):
    log = open_log(disk)
    commit(log, batch(b"v", timestamp_ms=10))
    log.append(batch(b"v", timestamp_ms=99), now_ms=1)
    assert log.largest_timestamp() == (0, 10)


def test_append_time_counts_where_the_topic_says_so(disk, open_log):
    log = open_log(disk, message_timestamp_type="LogAppendTime")
    commit(log, batch(b"a", b"b", timestamp_ms=1), now_ms=500)
    assert log.offset_for_time(400) == (0, 500)
