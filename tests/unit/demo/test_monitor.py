"""The records of a captured topic are counted once each, whatever happens while they are read."""

import pytest

from headrace.client import EARLIEST
from headrace.demo.monitor import CapturedTopic
from headrace.errors import RetriableError
from headrace.records import Record, encode_batch, stamp


class Log:
    """A topic of one partition with a record in each batch, and a marker behind it."""

    def __init__(self, records):
        self.records = records
        self.ends_at = None  # the end that it names, if more has been written since
        self.goes_down_at = None

    @property
    def end(self):
        return 2 * self.records

    def offsets(self, _, when):
        return {0: 0 if when == EARLIEST else self.end if self.ends_at is None else self.ends_at}

    def fetch(self, _, partition, start, end):
        for offset in range(start + start % 2, self.end, 2) if start < end else ():
            if offset == self.goes_down_at:
                raise RetriableError("the log is down")
            batch = encode_batch([Record(0, 0, b"key", b"value")])
            stamp(batch, 0, offset, 0)
            yield memoryview(batch)


def test_the_ends_of_transactions_do_not_count():
    topic = CapturedTopic(Log(3), "customers")
    assert (topic.look(), topic.count) == ({0: 5}, 3)


def test_a_record_that_comes_after_the_end_was_named_counts_once():
    log = Log(3)
    topic = CapturedTopic(log, "customers")
    log.ends_at = 4
    assert (topic.look(), topic.count) == ({0: 3}, 2)
    log.ends_at = None
    assert (topic.look(), topic.count) == ({0: 5}, 3)


def test_records_that_were_read_before_the_log_went_down_count_once():
    log = Log(3)
    topic = CapturedTopic(log, "customers")
    log.goes_down_at = 4
    with pytest.raises(RetriableError):
        topic.look()
    log.goes_down_at = None
    assert (topic.look(), topic.count) == ({0: 5}, 3)
