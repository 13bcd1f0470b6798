"""Compaction on a disk that stops at each create, write, sync, rename and removal.

A seeded log of tombstones, transactions and an idempotent producer is compacted
several times, with memory for few keys, so that runs end in the midst of segments.
The disk stops at every step of that in turn, is found as a power cut or a kill
leaves it, and is reopened. Named invariants: SameTable, OffsetsStay, RetriesGetTheirOffset,
NothingLeftBehind, CompactionGoesOn. The seed and the step are in every failure's message.
"""

import random
from pathlib import Path

import pytest

from headrace.records import Marker, Record, decode_batch, encode_batch
from headrace.storage import CompactionLimits, Files, PartitionLog, TopicConfig
from headrace.testing.batches import batches_in
from headrace.testing.disk import Crash, SimulatedDisk

PATH = Path("partition")
CONFIG = TopicConfig(
    segment_bytes=1024,
    index_interval_bytes=256,
    cleanup_policy="compact",
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=30,
)
LIMITS = CompactionLimits(map_bytes=24 * 8, read_bytes=300)
ROUNDS = 3


def opened(disk):
    return PartitionLog.open(PATH, CONFIG, files=Files(disk))


class Written:
    """What was sent: every record by offset, those of aborted transactions apart, and the last retry."""

    def __init__(self):
        self.records = {}
        self.void = set()
        self.last = None
        self.sequences = [0, 0, 0]


def write(log, rng, written):
    """A few segments of records; every transaction is ended."""
    for number in range(rng.randint(8, 14)):
        producer = rng.choice([-1, 0, 1, 2])
        records = [
            Record(0, number, b"k%d" % rng.randrange(9), None if rng.random() < 0.2 else b"%d" % number * 20)
            for _ in range(rng.randint(1, 4))
        ]
        transactional = producer > 0
        batch = encode_batch(
            records,
            codec=rng.randrange(5),
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=written.sequences[producer] if producer >= 0 else -1,
            transactional=transactional,
        )
        sent = bytes(batch)
        base = log.append(batch, now_ms=1).base_offset
        offsets = range(base, base + len(records))
        written.records |= dict(zip(offsets, [(r.key, r.value) for r in records], strict=True))
        if producer >= 0:
            written.sequences[producer] += len(records)
        if producer == 0:
            written.last = sent, base
        if transactional:
            commit = rng.random() < 0.6
            log.append_marker(Marker(producer, 0, 0, commit), now_ms=1)
            if not commit:
                written.void.update(offsets)
    log.commit()
    log.roll()


def prepared(seed):
    """A log that was compacted once and written to again: clean and dirty segments."""
    disk, rng, written = SimulatedDisk(), random.Random(seed), Written()
    log = opened(disk)
    write(log, rng, written)
    log.compact(1000, LIMITS)
    write(log, rng, written)
    return disk, log, written


def compact(log):
    for number in range(ROUNDS):  # tombstones and markers get their time, wait, and go
        log.compact(1000 + 40 * number, LIMITS)


def readable(log):
    """What a reader of committed records gets, by offset."""
    found, offset = {}, 0
    while (extent := log.locate(offset, 500, committed=True)) is not None:
        with extent:
            data = extent.read_whole()
            void = log.aborted(offset, extent.offset_bound())
        for position, header in batches_in(data):
            assert header.base_offset >= offset
            offset = header.next_offset
            if header.is_control or any(
                header.is_transactional
                and each.producer_id == header.producer_id
                and each.first_offset <= header.base_offset <= each.last_offset
                for each in void
            ):
                continue
            found |= {r.offset: (r.key, r.value) for r in decode_batch(data, position)}
    return found


def table(records):
    latest = dict(pair for _, pair in sorted(records.items()))
    return {key: value for key, value in latest.items() if value is not None}


def check(disk, written):
    log = opened(disk)
    expected = {offset: pair for offset, pair in written.records.items() if offset not in written.void}
    found = readable(log)
    assert found.items() <= expected.items()  # OffsetsStay
    assert table(found) == table(expected)  # SameTable
    assert log.damage == ()
    assert log.open_transactions() == []
    if written.last is not None:  # RetriesGetTheirOffset
        batch, base = written.last
        again = log.append(bytearray(batch), now_ms=1)
        assert (again.duplicate, again.base_offset) == (True, base)
    names = disk.list(PATH)  # NothingLeftBehind
    assert not [name for name in names if name.endswith(".tmp")]
    assert {PATH / name for name in names if name.endswith("log")} == {s.path for s in log._reader.segments}
    compact(log)  # CompactionGoesOn
    left = readable(log)
    assert table(left) == table(expected)
    assert len(left) <= len(table(expected)) + 1
    return left


def crash_everywhere(seed):
    disk, log, written = prepared(seed)
    begin = disk.steps
    compact(log)
    end = disk.steps
    assert end - begin > 50
    whole = check(disk, written)
    for step in range(begin, end):
        disk, log, written = prepared(seed)
        disk.crash_at = step
        with pytest.raises(Crash):
            compact(log)
        # The kill last: unlike the others it leaves the very files, which are then worked on.
        found = [disk.after_power_cut(random.Random(step + n) if n else None) for n in range(3)]
        for number, after in enumerate([*found, disk.after_kill()]):
            try:
                assert check(after, written) == whole
            except Exception as error:
                raise AssertionError(f"{seed=} {step=} disk={number}: {disk.log[-3:]}") from error


@pytest.mark.parametrize("seed", [1])
def test_the_invariants_hold_after_a_crash_at_every_step_of_compaction(seed):
    crash_everywhere(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_the_invariants_hold_after_a_crash_at_every_step_of_compacting_many_logs(seed):
    crash_everywhere(seed)
