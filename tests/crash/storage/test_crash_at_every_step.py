"""The log on a disk that stops at each write, sync, rename and removal, and loses what was not synced.

A seeded workload runs on a simulated disk until a chosen step; the disk is then
found as a power cut or a kill leaves it, reopened, and the invariants checked.
The seed and the step are in every failure's message.
"""

import contextlib
import itertools
import random
from pathlib import Path

import pytest

from headrace.errors import CorruptionError
from headrace.records import Record, decode_batch, encode_batch
from headrace.storage import Files, PartitionLog, TopicConfig
from headrace.storage.segments.zeros_ahead import ZerosPolicy
from headrace.testing.batches import batches_in
from headrace.testing.disk import Crash, SimulatedDisk

PATH = Path("partition")
ZEROS = ZerosPolicy(small_bytes=400, least_bytes=100, most_bytes=500)
CONFIG = TopicConfig(segment_bytes=1024, index_interval_bytes=256, retention_bytes=6000)
COMPACT = TopicConfig(
    segment_bytes=1024,
    index_interval_bytes=256,
    cleanup_policy="compact",
    min_cleanable_dirty_ratio=0.3,
    delete_retention_ms=30,
)


class Witness:
    """What the outside world knows: records sent, acknowledged, seen, and deleted on request."""

    def __init__(self):
        self.sent = {}  # offset: every value ever sent for it
        self.acknowledged = {}  # offset: key and value
        self.seen = {}
        self.start_offset = 0
        self.synced_offset = 0

    def sends(self, log, records, now_ms):
        base = log.append(encode_batch(records), now_ms=now_ms).base_offset
        for delta, record in enumerate(records):
            self.sent.setdefault(base + delta, set()).add((record.key, record.value))
        return {base + delta: (record.key, record.value) for delta, record in enumerate(records)}


def readable(log):
    """Offset to key and value of everything that can be read, around damage."""
    found, offset = {}, log.start_offset
    while offset < log.high_watermark:
        try:
            data = log.read(offset, 700)
        except CorruptionError:
            (offset,) = {d.next_offset for d in log.damage if d.first_offset <= offset < d.next_offset}
            continue
        if not data:
            break
        for position, header in batches_in(data):
            found |= {r.offset: (r.key, r.value) for r in decode_batch(data, position) if r.offset >= offset}
            offset = header.next_offset
    return found


def work(disk, witness, rng, config):
    """Forty random things that a broker does to a partition."""
    log = PartitionLog.open(PATH, config, files=Files(disk, zeros=ZEROS))
    numbers = itertools.count()
    for now_ms in range(0, 4000, 100):
        deed = rng.choices(("append", "read", "delete", "keep up", "reopen"), (60, 15, 5, 15, 5))[0]
        if deed == "append":
            pending = {}
            for _ in range(rng.randint(1, 4)):
                records = [record(rng, next(numbers), now_ms) for _ in range(rng.randint(1, 3))]
                pending |= witness.sends(log, records, now_ms)
            log.commit()
            witness.acknowledged |= pending
        elif deed == "read":
            witness.seen |= readable(log)
        elif deed == "delete":
            # A request under way may take effect, or not: from here on nobody counts on these records.
            witness.start_offset = rng.randint(log.start_offset, log.high_watermark)
            log.delete_before(witness.start_offset)
        elif deed == "keep up":
            witness.start_offset = max(witness.start_offset, log.start_offset)
            log.apply_retention(now_ms)
            log.compact(now_ms)
        else:
            log.close()
            log = PartitionLog.open(PATH, config, files=Files(disk, zeros=ZEROS))
        witness.start_offset = max(witness.start_offset, log.start_offset)
    log.close()


def record(rng, number, now_ms):
    value = None if rng.random() < 0.1 else b"%d " % number + b"x" * rng.randint(0, 60)
    return Record(0, now_ms, b"k%d" % rng.randint(0, 5), value)


def state(records):
    """What a table built from these records holds."""
    table = {}
    for _, (key, value) in sorted(records.items()):
        table[key] = value
    return {key: value for key, value in table.items() if value is not None}


def acked_records_survive(witness, log, found, config):
    """AckedRecordsSurvive: nothing acknowledged is missing, unless retention or a request deleted it."""
    start = max(witness.start_offset, log.start_offset)
    kept = {offset: pair for offset, pair in witness.acknowledged.items() if offset >= start}
    if config.compacts:
        later = {offset: pair for offset, pair in found.items() if offset >= start}
        sent_later = {offset for offset in later if offset not in kept}
        assert state(later) == state(kept | {offset: later[offset] for offset in sent_later})
    else:
        assert {offset: found.get(offset) for offset in kept} == kept


def offsets_never_reused(witness, log, found):
    """OffsetsNeverReused: an offset acknowledged or seen holds the same record for ever, and no new one."""
    for offset, pair in found.items():
        assert witness.acknowledged.get(offset, pair) == pair
        assert witness.seen.get(offset, pair) == pair
        assert pair in witness.sent[offset]
    assert log.end_offset > max([*witness.acknowledged, *witness.seen], default=-1)


def readers_see_only_synced(witness, log, found, config):
    """ReadersSeeOnlySynced: what anybody saw is still there after a power cut."""
    if not config.compacts:
        start = max(witness.start_offset, log.start_offset)
        assert {offset for offset in witness.seen if offset >= start} <= set(found)


def check(witness, disk, config):
    log = PartitionLog.open(PATH, config, files=Files(disk, zeros=ZEROS))
    found = readable(log)
    acked_records_survive(witness, log, found, config)
    offsets_never_reused(witness, log, found)
    readers_see_only_synced(witness, log, found, config)
    for damage in log.damage:
        assert not any(damage.first_offset <= offset < damage.next_offset for offset in witness.acknowledged)
    base = log.append(encode_batch([Record(0, 1, b"new", b"one")]), now_ms=9999).base_offset
    log.commit()
    again = PartitionLog.open(PATH, config, files=Files(disk.after_power_cut(), zeros=ZEROS))
    assert readable(again) == found | {base: (b"new", b"one")}


def run_until(step, seed, config):
    disk, witness = SimulatedDisk(), Witness()
    disk.crash_at = step
    try:
        work(disk, witness, random.Random(seed), config)
    except Crash:
        return disk, witness, True
    return disk, witness, False


def crash_everywhere(seed, config, *, stride=1):
    whole, _, _ = run_until(None, seed, config)
    for step in range(0, whole.steps, stride):
        disk, witness, crashed = run_until(step, seed, config)
        assert crashed
        found = [disk.after_power_cut(), *(disk.after_power_cut(random.Random(n)) for n in range(3))]
        for number, after in enumerate([*found, disk.after_kill()]):
            try:
                check(witness, after, config)
            except Exception as error:
                raise AssertionError(f"{seed=} {step=} disk={number}: {disk.log[-3:]}") from error


@pytest.mark.parametrize("config", [CONFIG, COMPACT], ids=["delete", "compact"])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_invariants_hold_after_a_crash_at_every_step(seed, config):
    crash_everywhere(seed, config)


@pytest.mark.slow
@pytest.mark.parametrize("config", [CONFIG, COMPACT], ids=["delete", "compact"])
@pytest.mark.parametrize("seed", range(100, 160))
def test_the_invariants_hold_after_a_crash_at_every_step_of_many_workloads(seed, config):
    crash_everywhere(seed, config)


@pytest.mark.parametrize("config", [CONFIG, COMPACT], ids=["delete", "compact"])
def test_the_invariants_hold_when_recovery_crashes_too(config):
    seed = 4
    whole, _, _ = run_until(None, seed, config)
    for step in range(0, whole.steps, 7):
        disk, witness, _ = run_until(step, seed, config)
        for recovery_step in range(6):
            after = disk.after_power_cut(random.Random(step))
            after.crash_at = recovery_step
            with contextlib.suppress(Crash):
                PartitionLog.open(PATH, config, files=Files(after, zeros=ZEROS))
            check(witness, after.after_power_cut(random.Random(recovery_step)), config)


@pytest.mark.parametrize("config", [CONFIG, COMPACT], ids=["delete", "compact"])
def test_a_whole_run_without_a_crash_loses_nothing(config):
    for seed in range(20):
        disk, witness, crashed = run_until(None, seed, config)
        assert not crashed
        check(witness, disk, config)
