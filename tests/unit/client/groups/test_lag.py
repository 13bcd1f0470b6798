"""Lag in records and in seconds."""

from headrace.client.groups.lag import UNKNOWN_TIME, PartitionLag, partition_lag, worst_seconds
from headrace.client.topics.positions import Bounds

NOW = 1_000_000


def lag(committed, *, start=0, end=100, unread=None):
    return partition_lag(
        committed=committed, bounds=Bounds(start=start, end=end), oldest_unread_ms=unread, now_ms=NOW
    )


def test_a_group_that_has_read_everything_has_no_lag():
    assert lag(100) == PartitionLag(records=0, seconds=0.0, lost_records=0)


def test_the_lag_in_seconds_is_the_age_of_the_oldest_unread_record():
    assert lag(60, unread=NOW - 2_500) == PartitionLag(records=40, seconds=2.5, lost_records=0)


def test_a_record_stamped_in_the_future_is_no_lag_in_seconds():
    assert lag(60, unread=NOW + 5_000).seconds == 0.0


def test_a_record_whose_timestamp_is_unknown_leaves_the_seconds_unknown():
    assert lag(60, unread=UNKNOWN_TIME) == PartitionLag(records=40, seconds=None, lost_records=0)


def test_offsets_that_hold_no_record_count_as_offsets_but_not_as_time():
    assert lag(99, unread=None) == PartitionLag(records=1, seconds=0.0, lost_records=0)


def test_a_group_that_committed_nothing_has_an_unknown_lag():
    assert lag(None) == PartitionLag(records=None, seconds=None, lost_records=0)


def test_records_deleted_before_they_were_read_are_counted_as_lost():
    assert lag(10, start=30, unread=NOW).lost_records == 20


def test_a_committed_offset_beyond_the_log_end_is_no_negative_lag():
    assert lag(120).records == 0


def test_the_worst_lag_ignores_what_is_unknown():
    assert worst_seconds([lag(None), lag(60, unread=NOW - 1_000), lag(100)]) == 1.0
    assert worst_seconds([lag(None)]) is None
