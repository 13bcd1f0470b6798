"""The durable log of a bucket's state, and the copies that workers keep of it."""

import random

import numpy as np
import pyarrow as pa
import pytest

from headrace.streams.engine.bucket_log import append, load
from headrace.streams.event_time import NO_WATERMARK
from headrace.streams.operators import WindowOperator, agg, tumbling

OPERATOR = WindowOperator(
    window=tumbling("1 minute"), keys=("key",), aggregates=(("n", agg.count()), ("sum", agg.sum("value")))
)


class DictLog:
    """A bucket's log in memory; `commit` and `abort` do what Spark does at the end of an attempt."""

    def __init__(self):
        self._kept = (None, {})
        self.abort()

    def abort(self):
        self._head, self._entries = self._kept[0], dict(self._kept[1])

    def commit(self):
        self._kept = (self._head, dict(self._entries))

    def head(self):
        return self._head

    def set_head(self, head):
        self._head = head

    def get(self, number):
        return self._entries[number]

    def put(self, number, entry):
        self._entries[number] = entry

    def remove(self, number):
        del self._entries[number]

    @property
    def size(self):
        return len(self._entries)


def rows(chance, count=20):
    times = np.array([chance.randrange(600_000_000) for _ in range(count)], np.int64)
    return pa.table(
        {
            "key": pa.array([chance.choice("abc") for _ in range(count)], pa.string()),
            "value": pa.array([chance.randrange(100) for _ in range(count)], pa.int64()),
            "_partition": pa.array([0] * count, pa.int32()),
            "_offset": pa.array(range(count), pa.int64()),
            "_event_time": times,
            "_watermark": pa.array([NO_WATERMARK] * count, pa.int64()),
        }
    )


def step(log, cached, table, watermark_us):
    copy = load(log, (OPERATOR,), cached, NO_WATERMARK)
    copy.watermark_us = max(copy.watermark_us, watermark_us)
    result = copy.states[0].advance([OPERATOR.partial(table)], copy.watermark_us)
    append(log, copy, [result.delta])
    return copy, result.changes


def fold(changes):
    return sorted(
        (row["key"], row["window_start"], row["after"]["n"], row["after"]["sum"])
        for table in changes
        if table is not None
        for row in table.to_pylist()
    )


@pytest.mark.parametrize("seed", range(8))
def test_whatever_attempts_fail_and_whichever_worker_goes_on_the_results_are_the_same(seed):
    print(f"seed {seed}")
    chance = random.Random(seed)
    batches = [(rows(chance), number * 15_000_000) for number in range(60)]
    batches.append((rows(chance, 0), 10**12))
    plain_log, copy, expected = DictLog(), None, []
    for table, watermark_us in batches:
        copy, changes = step(plain_log, copy, table, watermark_us)
        plain_log.commit()
        expected.append(changes)

    log, workers, found = DictLog(), [None, None, None], []
    for table, watermark_us in batches:
        while chance.random() < 0.4:  # an attempt that fails: its copy stays, its writes do not
            worker = chance.randrange(3)
            workers[worker], _ = step(log, workers[worker], table, watermark_us)
            log.abort()
        worker = chance.randrange(3)
        workers[worker], changes = step(log, workers[worker], table, watermark_us)
        log.commit()
        found.append(changes)
    assert fold(found) == fold(expected)
    assert fold(found)


def test_the_log_stays_short_because_snapshots_replace_what_they_hold():
    chance, log, copy, sizes = random.Random(1), DictLog(), None, []
    for _ in range(200):
        copy, _ = step(log, copy, rows(chance, 3), 0)
        log.commit()
        sizes.append(log.size)
    assert max(sizes) <= 33
    assert sizes.count(1) >= 3


def test_a_copy_that_is_up_to_date_is_used_as_it_is():
    log = DictLog()
    copy, _ = step(log, None, rows(random.Random(1)), 0)
    log.commit()
    assert load(log, (OPERATOR,), copy, NO_WATERMARK) is copy


def test_a_copy_of_a_failed_attempt_is_not_trusted():
    log = DictLog()
    failed, _ = step(log, None, rows(random.Random(1)), 0)
    log.abort()
    step(log, None, rows(random.Random(2)), 0)
    log.commit()
    assert load(log, (OPERATOR,), failed, NO_WATERMARK) is not failed
