"""The log against a list: any sequence of operations, restarts and crashes gives what a list would."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.errors import CorruptionError, DiskError, RequestError
from headrace.records import Record, decode_batch, encode_batch
from headrace.storage import Files, PartitionLog, TopicConfig
from headrace.storage.segments.zeros_ahead import ZerosPolicy
from headrace.testing.batches import batches_in
from headrace.testing.disk import Crash, SimulatedDisk

PATH = Path("partition")
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp_ms=st.integers(0, 500),
        key=st.sampled_from([b"a", b"b", b"c", None]),
        value=st.none() | st.binary(max_size=80),
        headers=st.just([]),
    ),
    min_size=1,
    max_size=4,
)


class LogMachine(RuleBasedStateMachine):
    """`synced` is the list: what the log must serve. `queued` is what the next commit adds to it."""

    @initialize(
        segment_bytes=st.sampled_from([1024, 2048, 1 << 20]),
        index_interval_bytes=st.sampled_from([256, 700]),
        compact=st.booleans(),
        zeros=st.sampled_from([None, ZerosPolicy(small_bytes=400, least_bytes=100, most_bytes=600)]),
    )
    def make(self, segment_bytes, index_interval_bytes, compact, zeros):
        self.zeros = zeros
        self.config = TopicConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=index_interval_bytes,
            cleanup_policy="compact" if compact else "delete",
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=50,
            retention_ms=-1,
        )
        self.disk = SimulatedDisk()
        self.synced: list[Record | None] = []  # by offset; None where a crash left damage
        self.queued: list[Record] = []
        self.refused = False  # the last commit failed, and nothing was appended since
        self.start = 0
        self.now_ms = 0
        self.open()

    def open(self):
        self.refused = False
        files = Files(self.disk, limit=3, index_cache_bytes=64, zeros=self.zeros)
        self.log = PartitionLog.open(PATH, self.config, files=files)

    # -- what is done to it

    @rule(records=RECORDS, codec=st.integers(0, 4))
    def append(self, records, codec):
        base = self.log.append(encode_batch(records, codec=codec), now_ms=self.now_ms).base_offset
        assert base == len(self.synced) + len(self.queued)
        self.queued += [record._replace(offset=base + delta) for delta, record in enumerate(records)]
        self.refused = False

    @rule()
    def commit(self):
        if self.refused:
            with pytest.raises(DiskError):
                self.log.commit()
            return
        assert self.log.commit() == len(self.synced) + len(self.queued)
        self.synced += self.queued
        self.queued = []

    @rule()
    def roll(self):
        self.log.roll()

    @rule(part=st.floats(0, 1))
    def delete_before(self, part):
        offset = int(part * len(self.synced))
        self.start = max(self.start, offset)
        assert self.log.delete_before(offset) == self.start

    @rule(limit_bytes=st.integers(0, 4000))
    @precondition(lambda self: self.config.deletes)
    def apply_retention(self, limit_bytes):
        self.log.configure(
            TopicConfig(segment_bytes=self.config.segment_bytes, retention_ms=-1, retention_bytes=limit_bytes)
        )
        before = self.log.size_bytes
        self.log.apply_retention(self.now_ms)
        self.log.configure(self.config)
        assert self.log.size_bytes >= min(before, limit_bytes)
        self.start = max(self.start, self.log.start_offset)

    @rule(later_ms=st.integers(0, 60))
    @precondition(lambda self: self.config.compacts)
    def compact(self, later_ms):
        self.now_ms += later_ms
        self.log.compact(self.now_ms)

    # -- what happens to it

    @rule()
    def reopen(self):
        self.commit()
        self.log.close()
        self.open()
        assert self.log.scanned_bytes == 0

    @rule()
    def kill(self):
        self.disk = self.disk.after_kill()
        self.queued = []
        self.open()

    @rule(seed=st.none() | st.integers(0, 1000))
    def power_cut(self, seed):
        self.disk = self.disk.after_power_cut(None if seed is None else random.Random(seed))
        self.queued = []
        self.open()

    @rule(steps=st.integers(0, 12), seed=st.none() | st.integers(0, 1000))
    def power_cut_during_a_commit(self, steps, seed):
        self.disk.crash_at = self.disk.steps + steps
        try:
            self.log.commit()
        except (Crash, DiskError):
            pass
        else:
            self.synced += self.queued
            self.queued = []
        self.disk = self.disk.after_power_cut(None if seed is None else random.Random(seed))
        self.open()
        # Of what was under way, any part may have survived, each record at its offset.
        survived = self.log.high_watermark - len(self.synced)
        assert 0 <= survived <= len(self.queued)
        lost = [range(d.first_offset, d.next_offset) for d in self.log.damage]
        for record in self.queued[:survived]:
            self.synced.append(None if any(record.offset in gone for gone in lost) else record)
        self.queued = []

    @rule(spare_bytes=st.integers(0, 500))
    @precondition(lambda self: self.queued)
    def disk_full(self, spare_bytes):
        self.disk.capacity_bytes = self.disk.used_bytes() + spare_bytes
        try:
            self.log.commit()
        except DiskError as error:
            assert error.full
            self.refused = True
        done = self.log.high_watermark - len(self.synced)
        self.synced += self.queued[:done]
        self.queued = []
        self.disk.capacity_bytes = None

    # -- what it must show

    def served(self, offset, max_bytes):
        """Records from an offset to the end, around damage."""
        found = []
        while offset < self.log.high_watermark:
            try:
                data = self.log.read(offset, max_bytes)
            except CorruptionError:
                assert self.synced[offset] is None
                (offset,) = {
                    d.next_offset for d in self.log.damage if d.first_offset <= offset < d.next_offset
                }
                continue
            if not data:
                break
            for position, header in batches_in(data):
                found += [record for record in decode_batch(data, position) if record.offset >= offset]
                offset = header.next_offset
        return found

    @rule(part=st.floats(0, 1), max_bytes=st.integers(1, 2000))
    def read(self, part, max_bytes):
        offset = self.start + int(part * (len(self.synced) - self.start))
        found = self.served(offset, max_bytes)
        there = [record for record in self.synced[offset:] if record is not None]
        if self.config.compacts:
            assert all(record == self.synced[record.offset] for record in found)
            assert [r.offset for r in found] == sorted({r.offset for r in found})
            if offset == self.start:
                assert _table(found) == _table(there)
        else:
            assert found == there

    @rule(timestamp_ms=st.integers(0, 500))
    @precondition(lambda self: self.config.deletes)
    def find_by_time(self, timestamp_ms):
        late = [r for r in self.synced[self.start :] if r is not None and r.timestamp_ms >= timestamp_ms]
        found = self.log.offset_for_time(timestamp_ms)
        assert found == ((late[0].offset, late[0].timestamp_ms) if late else None)

    @rule()
    @precondition(lambda self: self.config.deletes)
    def find_the_largest_time(self):
        there = [record for record in self.synced[self.start :] if record is not None]
        largest = max((record.timestamp_ms for record in there), default=None)
        first = next((r.offset for r in there if r.timestamp_ms == largest), None)
        assert self.log.largest_timestamp() == (None if first is None else (first, largest))

    @invariant()
    def the_edges_are_right(self):
        if not hasattr(self, "log"):
            return
        assert self.log.start_offset == self.start
        assert self.log.high_watermark == len(self.synced)
        for outside in (self.start - 1, self.log.end_offset + 1):
            with pytest.raises(RequestError):
                self.log.locate(outside, 1)


def _table(records):
    table = {record.key: record.value for record in records if record.key is not None}
    keyless = [record.offset for record in records if record.key is None]
    return {key: value for key, value in table.items() if value is not None}, keyless


TestLogAgainstAList = LogMachine.TestCase
TestLogAgainstAList.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


class LongLogMachine(LogMachine):
    """The same, for the campaign."""


TestLogAgainstAListForLong = pytest.mark.slow(LongLogMachine.TestCase)
TestLogAgainstAListForLong.settings = settings(TestLogAgainstAList.settings, max_examples=3000)
