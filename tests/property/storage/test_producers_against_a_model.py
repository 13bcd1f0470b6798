"""Producers of a log against a model that keeps everything: retries, epochs, transactions, crashes.

The model is the list of batches that the log has, and plain rules over all of it.
After any sequence of operations the log answers a retry as the model does, and a
reader of committed records sees what the model says is committed.
"""

import contextlib
import random
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.errors import CorruptionError, DiskError, RequestError
from headrace.records import Marker, Record, decode_batch, encode_batch
from headrace.storage import Files, PartitionLog, TopicConfig
from headrace.testing.batches import batches_in
from headrace.testing.disk import Crash, SimulatedDisk

PATH = Path("partition")
OUT_OF_ORDER, BAD_EPOCH, BAD_STATE, UNKNOWN_PRODUCER = 45, 47, 48, 59
SNAPSHOTS = ("producers", "producers-0", "producers-1")
PRODUCERS = st.integers(0, 2)


class Sent(NamedTuple):
    producer: int
    epoch: int
    sequence: int
    count: int
    transactional: bool
    base: int
    value: bytes

    @property
    def last(self):
        return self.base + self.count - 1


class Mark(NamedTuple):
    producer: int
    epoch: int
    commit: bool
    base: int

    @property
    def last(self):
        return self.base


class ProducersMachine(RuleBasedStateMachine):
    """Entries are synced or queued; everything else is computed from them."""

    @initialize(segment_bytes=st.sampled_from([300, 700, 5000]), compact=st.booleans())
    def begin(self, segment_bytes, compact):
        self.disk = SimulatedDisk()
        self.config = TopicConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=256,
            cleanup_policy="compact" if compact else "delete",
            min_cleanable_dirty_ratio=0.01,
        )
        self.synced, self.queued = [], []
        self.number = 0
        self.now_ms = 1000
        self.start = 0
        self.open()

    def open(self):
        self.refused = False
        self.log = PartitionLog.open(PATH, self.config, files=Files(self.disk))

    # -- the model

    def known(self):
        return self.synced + self.queued

    def state_of(self, producer):
        """Epoch, batches of that epoch, and whether a transaction is open."""
        epoch, batches, is_open = None, [], False
        for entry in self.known():
            if entry.producer != producer:
                continue
            if entry.epoch != epoch:
                epoch, batches = entry.epoch, []
            if isinstance(entry, Sent):
                batches.append(entry)
                is_open = is_open or entry.transactional
            else:
                is_open = False
        return epoch, batches, is_open

    def verdict(self, producer, epoch, sequence, count, transactional):
        """The code of a refusal, the batch that is repeated, or None.

        Of a transaction only what it has itself sent is repeated.
        """
        now, batches, is_open = self.state_of(producer)
        opened = self.transactions(self.known())[1].get(producer, float("inf"))
        if now is None:
            return None
        if epoch < now:
            return BAD_EPOCH
        expected = 0
        if epoch == now:
            for sent in batches[-5:]:
                counts = not transactional or sent.base >= opened
                if (sent.sequence, sent.count) == (sequence, count) and counts:
                    return sent
            expected = batches[-1].sequence + batches[-1].count if batches else 0
            if sequence != expected and transactional and self.was_of_an_ended(batches, opened, sequence):
                return UNKNOWN_PRODUCER
        if sequence != expected:
            return OUT_OF_ORDER
        return BAD_STATE if is_open and not transactional else None

    def was_of_an_ended(self, batches, opened, sequence):
        return any(
            sent.sequence <= sequence < sent.sequence + sent.count and sent.base < opened
            for sent in batches[-5:]
        )

    def transactions(self, entries):
        """First offset, last offset and outcome of each transaction; the last two None while it is open."""
        open_at, done = {}, []
        for entry in entries:
            if isinstance(entry, Sent):
                if entry.transactional:
                    open_at.setdefault(entry.producer, entry.base)
            elif entry.producer in open_at:
                done.append((entry.producer, open_at.pop(entry.producer), entry.base, entry.commit))
        return done, open_at

    def stable(self):
        _, open_at = self.transactions(self.synced)
        end = self.synced[-1].last + 1 if self.synced else 0
        return max(self.start, min(open_at.values(), default=end))

    # -- what is done to both

    def send(self, producer, epoch, sequence, count, transactional, value=None):
        self.number += 1
        value = value or b"%d" % self.number
        batch = encode_batch(
            [Record(0, 1, b"%d-%d" % (producer, n), value) for n in range(count)],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        self.refused = False
        expected = self.verdict(producer, epoch, sequence, count, transactional)
        if isinstance(expected, int):
            with pytest.raises(RequestError) as caught:
                self.log.append(batch, now_ms=self.now_ms)
            assert caught.value.code == expected
            return
        appended = self.log.append(batch, now_ms=self.now_ms)
        if expected is None:
            assert not appended.duplicate
            self.queued.append(
                Sent(producer, epoch, sequence, count, transactional, appended.base_offset, value)
            )
        else:
            assert (appended.duplicate, appended.base_offset, appended.last_offset) == (
                True,
                expected.base,
                expected.last,
            )

    @rule(producer=PRODUCERS, count=st.integers(1, 3), transactional=st.booleans(), bump=st.integers(0, 6))
    def send_the_next(self, producer, count, transactional, bump):
        epoch, batches, is_open = self.state_of(producer)
        if bump == 6:
            self.send(producer, (epoch or 0) + 1, 0, count, transactional or is_open)
        else:
            sequence = batches[-1].sequence + batches[-1].count if batches else 0
            self.send(producer, epoch or 0, sequence, count, transactional or is_open)

    @rule(data=st.data(), back=st.integers(1, 7))
    @precondition(lambda self: any(isinstance(entry, Sent) for entry in self.known()))
    def send_again(self, data, back):
        sent = [entry for entry in self.known() if isinstance(entry, Sent)]
        producer = data.draw(st.sampled_from(sorted({entry.producer for entry in sent})))
        own = [entry for entry in sent if entry.producer == producer]
        old = own[-min(back, len(own))]
        self.send(*old[:5], old.value)

    @rule(
        producer=PRODUCERS,
        epoch=st.integers(0, 3),
        sequence=st.integers(0, 12),
        count=st.integers(1, 3),
        transactional=st.booleans(),
    )
    def send_anything(self, producer, epoch, sequence, count, transactional):
        self.send(producer, epoch, sequence, count, transactional)

    @rule(producer=PRODUCERS, commit=st.booleans(), bump=st.integers(-1, 1))
    def end(self, producer, commit, bump):
        now, _, _ = self.state_of(producer)
        epoch = (now or 0) + bump
        if epoch < 0:
            return
        self.refused = False
        marker = Marker(producer, epoch, 0, commit)
        if now is not None and epoch < now:
            with pytest.raises(RequestError) as caught:
                self.log.append_marker(marker, now_ms=self.now_ms)
            assert caught.value.code == BAD_EPOCH
            return
        offset = self.log.append_marker(marker, now_ms=self.now_ms)
        self.queued.append(Mark(producer, epoch, commit, offset))

    @rule(later_ms=st.sampled_from([0, 700, 5000]))
    def commit(self, later_ms):
        self.now_ms += later_ms
        if self.refused:  # said so already; the next append begins anew
            with pytest.raises(DiskError):
                self.log.commit()
            return
        self.log.commit()
        self.synced += self.queued
        self.queued = []

    @rule()
    def roll(self):
        self.log.roll()

    @rule()
    def compact(self):
        self.log.compact(self.now_ms)

    @rule(part=st.floats(0, 1))
    def delete(self, part):
        self.log.delete_before(int(part * self.log.high_watermark))
        self.start = self.log.start_offset

    # -- what happens to it

    @rule(spare_bytes=st.integers(0, 300))
    @precondition(lambda self: self.queued)
    def disk_full(self, spare_bytes):
        self.disk.capacity_bytes = self.disk.used_bytes() + spare_bytes
        try:
            self.log.commit()
        except DiskError as error:
            assert error.full
            self.refused = True
        self.synced += [entry for entry in self.queued if entry.last < self.log.high_watermark]
        self.queued = []
        self.disk.capacity_bytes = None

    def forget_snapshots(self, count):
        for name in SNAPSHOTS[::-1][:count]:
            if self.disk.exists(PATH / name):
                self.disk.unlink(PATH / name)

    @rule(lost=st.integers(0, 3))
    def reopen(self, lost):
        self.commit(0)
        self.log.close()
        self.forget_snapshots(lost if self.may_lose_snapshots() else 0)
        self.open()

    @rule(lost=st.integers(0, 3))
    def kill(self, lost):
        self.disk = self.disk.after_kill()
        self.queued = []
        self.forget_snapshots(lost if self.may_lose_snapshots() else 0)
        self.open()

    @rule(seed=st.none() | st.integers(0, 1000))
    def power_cut(self, seed):
        self.disk = self.disk.after_power_cut(None if seed is None else random.Random(seed))
        self.queued = []
        self.open()

    @rule(steps=st.integers(0, 12))
    def power_cut_during_a_commit(self, steps):
        self.disk.crash_at = self.disk.steps + steps
        with contextlib.suppress(Crash, DiskError):
            self.log.commit()
        self.disk = self.disk.after_power_cut()
        self.open()
        self.synced += [entry for entry in self.queued if entry.last < self.log.high_watermark]
        self.queued = []

    def may_lose_snapshots(self):
        """Without any, what was deleted or compacted away is not known of a producer: then it is not lost."""
        return self.start == 0 and not self.config.compacts

    # -- what it must show

    @rule(max_bytes=st.integers(1, 2000))
    def read_committed(self, max_bytes):
        found, offset = {}, self.start
        while (extent := self.log.locate(offset, max_bytes, committed=True)) is not None:
            with extent:
                data = extent.read_whole()
                void = self.log.aborted(offset, extent.offset_bound())
            for position, header in batches_in(data):
                records = [r for r in decode_batch(data, position) if r.offset >= self.start]
                offset = header.next_offset
                if not header.is_control and not any(_voids(each, header) for each in void):
                    found |= {record.offset: (record.key, record.value) for record in records}
        expected = self.committed()
        if self.config.compacts:
            assert found.items() <= expected.items()
            assert dict(found.values()) == dict(expected.values())
        else:
            assert found == expected

    def committed(self):
        done, _ = self.transactions(self.synced)
        void = [(producer, first, last) for producer, first, last, commit in done if not commit]
        stable, records = self.stable(), {}
        for entry in self.synced:
            if not isinstance(entry, Sent):
                continue
            if entry.transactional and any(
                producer == entry.producer and first <= entry.base <= last for producer, first, last in void
            ):
                continue
            for n in range(entry.count):
                if self.start <= entry.base + n < stable:
                    records[entry.base + n] = (b"%d-%d" % (entry.producer, n), entry.value)
        return records

    @invariant()
    def the_edges_are_right(self):
        if not hasattr(self, "log"):
            return
        assert self.log.high_watermark == (self.synced[-1].last + 1 if self.synced else 0)
        assert self.log.last_stable_offset == self.stable()
        _, open_at = self.transactions(self.known())
        assert {each.producer_id: each.first_offset for each in self.log.open_transactions()} == open_at
        for state in self.log.producers():
            epoch, batches, _ = self.state_of(state.producer_id)
            last = batches[-1].sequence + batches[-1].count - 1 if batches else -1
            assert (state.producer_epoch, state.last_sequence) == (epoch, last)
        assert self.log.damage == ()

    @invariant()
    def nothing_is_read_that_was_not_sent(self):
        if not hasattr(self, "log"):
            return
        with pytest.raises((RequestError, CorruptionError)):
            self.log.locate(self.log.end_offset + 1, 1, committed=True)


def _voids(each, header):
    return (
        header.is_transactional
        and each.producer_id == header.producer_id
        and each.first_offset <= header.base_offset <= each.last_offset
    )


TestProducersAgainstAModel = ProducersMachine.TestCase
TestProducersAgainstAModel.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_what_is_deleted_before_a_roll_on_a_full_disk_is_still_known_of_its_producer():
    """Found by the campaign: the roll went on without its snapshot, and the next start removed the rest."""
    machine = ProducersMachine()
    machine.begin(segment_bytes=300, compact=False)
    machine.send_the_next(producer=0, count=1, transactional=True, bump=0)
    machine.send_the_next(producer=0, count=1, transactional=True, bump=0)
    machine.send_the_next(producer=1, count=1, transactional=False, bump=0)
    machine.power_cut_during_a_commit(steps=2)  # behind the commit, before anything is kept of it
    machine.send_the_next(producer=1, count=3, transactional=False, bump=0)
    machine.delete(1.0)
    machine.disk_full(spare_bytes=69)  # room for an empty segment
    assert machine.refused
    machine.kill(0)
    machine.the_edges_are_right()
    machine.send_the_next(producer=1, count=3, transactional=False, bump=0)
    machine.commit(0)
    machine.the_edges_are_right()


class LongProducersMachine(ProducersMachine):
    """The same, for the campaign."""


TestProducersAgainstAModelForLong = pytest.mark.slow(LongProducersMachine.TestCase)
TestProducersAgainstAModelForLong.settings = settings(TestProducersAgainstAModel.settings, max_examples=3000)
