"""A compacted log against a dictionary: whatever is done to it, a reader builds the same table.

Appends of any codec, tombstones, transactions that commit and abort, idempotent
producers that send again, rolls, deletions, compactions with memory for a few keys
only, clean and unclean restarts, in any order. The dictionary is what a reader of
committed records holds who saw every record; a reader of the log must hold the same.
"""

import random
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.records import Marker, Record, decode_batch, encode_batch
from headrace.storage import CompactionLimits, Files, PartitionLog, TopicConfig
from headrace.testing.batches import batches_in
from headrace.testing.disk import Crash, SimulatedDisk

PATH = Path("partition")
DELETE_RETENTION_MS = 50
HEADERS = st.tuples(st.sampled_from(["h", "é"]), st.none() | st.binary(max_size=3))
KEYS = [b"a", b"b", b"c", b"d", b"e" * 40, b""]
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp_ms=st.integers(0, 500),
        key=st.sampled_from(KEYS) | st.none(),
        value=st.none() | st.binary(max_size=60),
        headers=st.lists(HEADERS, max_size=2),
    ),
    min_size=1,
    max_size=5,
)


class Entry(NamedTuple):
    """One record as it was sent; `transaction` counts those of its producer, -1 outside of any."""

    record: Record
    producer: int
    transaction: int


class DictionaryMachine(RuleBasedStateMachine):
    """`entries` is every record ever synced, by offset."""

    @initialize(
        segment_bytes=st.sampled_from([1024, 3000]),
        policy=st.sampled_from(["compact", "compact,delete"]),
        ratio=st.sampled_from([0.0, 0.5]),
        map_bytes=st.sampled_from([24 * 6, 24 * 12, 1 << 16]),
        read_bytes=st.sampled_from([1, 500, 1 << 20]),
    )
    def make(self, segment_bytes, policy, ratio, map_bytes, read_bytes):
        self.config = TopicConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=256,
            cleanup_policy=policy,
            min_cleanable_dirty_ratio=ratio,
            delete_retention_ms=DELETE_RETENTION_MS,
            retention_ms=-1,
        )
        self.limits = CompactionLimits(map_bytes=map_bytes, read_bytes=read_bytes)
        self.disk = SimulatedDisk()
        self.entries: dict[int, Entry] = {}
        self.outcomes: dict[tuple[int, int], bool] = {}  # of a producer's transactions that ended
        self.transactions = {1: 0, 2: 0}
        self.sequences = {1: 0, 2: 0, 3: 0}
        self.last = {}  # producer: its last batch and offset
        self.now_ms = 1000
        self.start = 0
        self.open()

    def open(self):
        self.log = PartitionLog.open(PATH, self.config, files=Files(self.disk, limit=3))

    # -- what is done to it

    def send(self, records, codec, producer, transactional=False):
        sequence = self.sequences.get(producer, -1)
        batch = encode_batch(
            records,
            codec=codec,
            producer_id=producer if producer else -1,
            producer_epoch=0 if producer else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        sent = bytes(batch)
        base = self.log.append(batch, now_ms=self.now_ms).base_offset
        self.log.commit()
        if producer:
            self.last[producer] = sent, base
            self.sequences[producer] += len(records)
        transaction = self.transactions[producer] if transactional else -1
        for delta, record in enumerate(records):
            kept = record._replace(offset=base + delta, headers=list(record.headers))
            self.entries[base + delta] = Entry(kept, producer, transaction)

    @rule(records=RECORDS, codec=st.integers(0, 4), idempotent=st.booleans())
    def append(self, records, codec, idempotent):
        self.send(records, codec, 3 if idempotent else 0)

    @rule(records=RECORDS, producer=st.sampled_from([1, 2]), codec=st.sampled_from([0, 3]))
    def append_in_transaction(self, records, producer, codec):
        self.send(records, codec, producer, transactional=True)

    @rule(producer=st.sampled_from([1, 2]), commit=st.booleans())
    def end_transaction(self, producer, commit):
        self.log.append_marker(Marker(producer, 0, 0, commit), now_ms=self.now_ms)
        self.log.commit()
        self.outcomes[producer, self.transactions[producer]] = commit
        self.transactions[producer] += 1

    @rule()
    @precondition(lambda self: 3 in self.last)
    def send_again(self):
        """The sequence of a producer goes on from its last batch, whatever became of its records."""
        batch, base = self.last[3]
        again = self.log.append(bytearray(batch), now_ms=self.now_ms)
        assert (again.duplicate, again.base_offset) == (True, base)

    @rule()
    def roll(self):
        self.log.roll()

    @rule(part=st.floats(0, 1))
    def delete_before(self, part):
        self.start = max(self.start, int(part * self.log.high_watermark))
        self.log.delete_before(self.start)

    @rule(later_ms=st.sampled_from([0, 1, DELETE_RETENTION_MS, 1000]))
    def compact(self, later_ms):
        self.now_ms += later_ms
        self.log.compact(self.now_ms, self.limits)

    @rule(steps=st.integers(0, 25), seed=st.none() | st.integers(0, 1000))
    def power_cut_during_compaction(self, steps, seed):
        self.disk.crash_at = self.disk.steps + steps
        try:
            self.log.compact(self.now_ms, self.limits)
        except Crash:
            self.disk = self.disk.after_power_cut(None if seed is None else random.Random(seed))
            self.open()
        self.disk.crash_at = None

    @rule()
    def reopen(self):
        self.log.close()
        self.open()

    @rule()
    def kill(self):
        self.disk = self.disk.after_kill()
        self.open()

    # -- what it must show

    def committed(self):
        """Every record that a reader of committed records would have seen, in order."""
        stable = self.log.last_stable_offset
        return [
            entry.record
            for offset, entry in sorted(self.entries.items())
            if self.start <= offset < stable
            and (entry.transaction < 0 or self.outcomes.get((entry.producer, entry.transaction), False))
        ]

    def read(self):
        """What the log shows a reader of committed records, and its batches."""
        found, headers, offset = [], [], self.start
        while (extent := self.log.locate(offset, 700, committed=True)) is not None:
            with extent:
                data = extent.read_whole()
                void = self.log.aborted(offset, extent.offset_bound())
            for position, header in batches_in(data):
                headers.append(header)
                records = [r for r in decode_batch(data, position) if r.offset >= self.start]
                offset = header.next_offset
                if not header.is_control and not any(_voids(each, header) for each in void):
                    found += [record._replace(headers=list(record.headers)) for record in records]
        return found, headers

    @invariant()
    def a_reader_builds_the_same_table(self):
        if not hasattr(self, "log"):
            return
        found, _ = self.read()
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        expected = self.committed()
        by_offset = {record.offset: record for record in expected}
        assert all(record == by_offset[record.offset] for record in found)
        assert _table(found) == _table(expected)
        assert self.log.damage == ()

    def teardown(self):
        """However it went, in the end it is compacted."""
        if hasattr(self, "log"):
            for each in self.log.open_transactions():
                self.end_transaction(each.producer_id, commit=False)
            self.compact_to_the_end()

    def compact_to_the_end(self):
        """After enough runs only the newest of each key is left, and neither tombstones nor markers."""
        for _ in range(4):
            self.log.roll()
            self.now_ms += DELETE_RETENTION_MS
            self.log.configure(TopicConfig(**{**_fields(self.config), "min_cleanable_dirty_ratio": 0.0}))
            self.log.compact(self.now_ms, self.limits)
        self.log.configure(self.config)
        found, headers = self.read()
        newest = {record.key: record.offset for record in self.committed() if record.key is not None}
        last = max((header.last_offset for header in headers), default=-1)
        for record in found:
            if record.key is not None and record.offset != last:
                assert newest[record.key] == record.offset
                assert record.value is not None
        needed = {base for _, base in self.last.values()}
        for header in headers:
            if header.last_offset == last or header.base_offset in needed:
                continue
            assert header.is_control or header.record_count
        self.a_reader_builds_the_same_table()


def _fields(config):
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


def _voids(each, header):
    return (
        header.is_transactional
        and each.producer_id == header.producer_id
        and each.first_offset <= header.base_offset <= each.last_offset
    )


def _table(records):
    table = {record.key: record.value for record in records if record.key is not None}
    keyless = [record.offset for record in records if record.key is None]
    return {key: value for key, value in table.items() if value is not None}, keyless


TestCompactionAgainstADictionary = DictionaryMachine.TestCase
TestCompactionAgainstADictionary.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


class LongDictionaryMachine(DictionaryMachine):
    """The same, for the campaign."""


TestCompactionAgainstADictionaryForLong = pytest.mark.slow(LongDictionaryMachine.TestCase)
TestCompactionAgainstADictionaryForLong.settings = settings(
    TestCompactionAgainstADictionary.settings, max_examples=3000
)
