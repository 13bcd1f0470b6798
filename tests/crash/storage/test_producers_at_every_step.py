"""Idempotent and transactional producers on a disk that stops at each step: after it, each sends again.

A seeded workload runs on a simulated disk until a chosen step; the disk is then
found as a power cut or a kill leaves it and reopened. Whoever got no answer asks
again, as clients and the coordinator of transactions do. Named invariants:
RetriesGetTheirOffset, EachRecordOnce, CommittedReadersSeeWhatWasCommitted.
The seed and the step are in every failure's message.
"""

import copy
import itertools
import random
from pathlib import Path

import pytest

from headrace.records import Marker, Record, decode_batch, encode_batch
from headrace.storage import Files, PartitionLog, TopicConfig
from headrace.testing.batches import batches_in
from headrace.testing.disk import Crash, SimulatedDisk

PATH = Path("partition")
CONFIG = TopicConfig(segment_bytes=700, index_interval_bytes=256)
BURST = 3
REMEMBERED = 5


class Producer:
    """Sends, and keeps what it sent until it is answered."""

    def __init__(self, number, transactional):
        self.number = number
        self.transactional = transactional
        self.sequence = 0
        self.answered = []  # (batch, base offset)
        self.waiting = []  # batches
        self.ending = None  # a marker without an answer
        self.open = []  # values of the transaction under way
        self.committed, self.aborted = [], []

    def next_batch(self, values):
        records = [Record(0, 1, None, value) for value in values]
        batch = encode_batch(
            records,
            producer_id=self.number,
            producer_epoch=0,
            base_sequence=self.sequence,
            transactional=self.transactional,
        )
        self.sequence += len(values)
        self.waiting.append(bytes(batch))
        (self.open if self.transactional else self.committed).extend(values)
        return batch

    def ended(self):
        (self.committed if self.ending.commit else self.aborted).extend(self.open)
        self.open, self.ending = [], None
        self.answered.clear()  # nothing is repeated across an end


def work(disk, producers, rng):
    log = PartitionLog.open(PATH, CONFIG, files=Files(disk))
    numbers = itertools.count()
    for now_ms in range(0, 30_000, 700):
        producer = rng.choice(producers)
        deed = rng.choices(("send", "end", "roll", "reopen"), (60, 25, 5, 10))[0]
        if deed == "send":
            for _ in range(rng.randint(1, BURST)):
                values = [b"%d" % next(numbers) for _ in range(rng.randint(1, 3))]
                log.append(producer.next_batch(values), now_ms=now_ms)
            send_again(log, producer)
        elif deed == "end" and producer.open:
            producer.ending = Marker(producer.number, 0, 0, rng.random() < 0.6)
            end_again(log, producer)
        elif deed == "roll":
            log.roll()
        elif deed == "reopen":
            log.close()
            log = PartitionLog.open(PATH, CONFIG, files=Files(disk))
    log.close()


def send_again(log, producer):
    """Sends what was not answered; after the sync it is."""
    offsets = [log.append(bytearray(batch), now_ms=1).base_offset for batch in producer.waiting]
    log.commit()
    producer.answered += zip(producer.waiting, offsets, strict=True)
    producer.waiting = []


def end_again(log, producer):
    log.append_marker(producer.ending, now_ms=1)
    log.commit()
    producer.ended()


def retries_get_their_offset(log, producer):
    for batch, base_offset in producer.answered[-(REMEMBERED - BURST) :]:
        again = log.append(bytearray(batch), now_ms=1)
        assert (again.base_offset, again.duplicate) == (base_offset, True)


def seen(log, *, committed):
    """Values in the order of a reader, who leaves out what it is told to."""
    values, offset = [], 0
    while (extent := log.locate(offset, 600, committed=committed)) is not None:
        with extent:
            data = extent.read_whole()
            void = log.aborted(offset, extent.offset_bound()) if committed else ()
        for position, header in batches_in(data):
            offset = header.next_offset
            if not header.is_control and not any(
                each.producer_id == header.producer_id
                and header.is_transactional
                and each.first_offset <= header.base_offset <= each.last_offset
                for each in void
            ):
                values += [record.value for record in decode_batch(data, position)]
    return values


def check(disk, producers):
    log = PartitionLog.open(PATH, CONFIG, files=Files(disk))
    for producer in producers:
        if producer.ending is None:
            retries_get_their_offset(log, producer)
        if producer.waiting:
            send_again(log, producer)
        if producer.ending is not None:
            end_again(log, producer)
    # EachRecordOnce
    sent = [value for p in producers for value in (*p.committed, *p.aborted, *p.open)]
    assert sorted(seen(log, committed=False)) == sorted(sent)
    for producer in producers:
        if producer.open:
            producer.ending = Marker(producer.number, 0, 0, commit=False)
            end_again(log, producer)
    # CommittedReadersSeeWhatWasCommitted
    assert log.open_transactions() == []
    assert sorted(seen(log, committed=True)) == sorted(value for p in producers for value in p.committed)


def run_until(step, seed):
    disk = SimulatedDisk()
    disk.crash_at = step
    producers = [Producer(0, False), Producer(1, True), Producer(2, True)]
    try:
        work(disk, producers, random.Random(seed))
    except Crash:
        pass
    else:
        assert step is None
    return disk, producers


def crash_everywhere(seed, stride=1):
    whole, _ = run_until(None, seed)
    for step in range(0, whole.steps, stride):
        disk, producers = run_until(step, seed)
        # The kill last: unlike the others it leaves the very files, which are then worked on.
        found = [disk.after_power_cut(), disk.after_power_cut(random.Random(step)), disk.after_kill()]
        for number, after in enumerate(found):
            try:
                check(after, copy.deepcopy(producers))
            except Exception as error:
                raise AssertionError(f"{seed=} {step=} disk={number}: {disk.log[-3:]}") from error


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_producers_go_on_as_if_nothing_was_after_a_crash_at_every_step(seed):
    crash_everywhere(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_producers_go_on_as_if_nothing_was_after_a_crash_at_every_step_of_many_workloads(seed):
    crash_everywhere(seed)


def test_a_whole_run_without_a_crash_says_each_record_once():
    for seed in range(20):
        disk, producers = run_until(None, seed)
        check(disk, producers)
