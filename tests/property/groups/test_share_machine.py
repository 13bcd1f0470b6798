"""A share partition against the simplest model: one entry a record.

Named invariants, checked after every step: OneLeasePerRecord, AcceptedOnce, FinishedForGood,
LimitHolds, StartOnlyGrows, ReplayGivesTheSame, BoundedRuns.
"""

from dataclasses import dataclass
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.groups import Code
from headrace.groups.share import (
    Ack,
    AckType,
    Burial,
    RecordState,
    ShareConfig,
    ShareDecision,
    SharePartition,
    Span,
    Taking,
    acknowledge,
    acquire,
    begin_burial,
    cut,
    expire,
    finish_burial,
    given_up,
    release,
    woken,
)
from headrace.groups.share.events import SharePartitionSaved
from headrace.groups.share.journal import decode, encode

MEMBERS = ("a", "b", "c")
LOCK_MS = 100


@dataclass
class Entry:
    """What the model knows of a record."""

    state: RecordState = RecordState.AVAILABLE
    deliveries: int = 0
    member: str = ""
    deadline_ms: int = 0


class ShareMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.records: dict[
            int, Entry
        ] = {}  # every offset that was delivered once, or is a gap behind which one is
        self.accepted: list[int] = []
        self.buried: list[int] = []
        self.log_start = 0
        self.end = 0
        self.batches: list[tuple[Span, bool]] = []
        self.starts = [0]

    @initialize(limit=st.integers(1, 4), locks=st.integers(1, 30), dead=st.booleans())
    def begin(self, limit: int, locks: int, dead: bool) -> None:
        self.config = ShareConfig(
            lock_duration_ms=LOCK_MS, delivery_count_limit=limit, max_record_locks=locks, dead_letters=dead
        )
        self.partition = SharePartition(group_id="g", topic_id=UUID(int=1), partition=0, start_offset=0)

    def hold(self, decision: ShareDecision[SharePartition]) -> None:
        """Takes a decision; what it persists is what it says."""
        if decision.state != self.partition:
            assert len(decision.events) == 1, "a change that is not persisted"
            event = decode(*encode(decision.events[0]))
            assert isinstance(event, SharePartitionSaved)
            assert event.partition == decision.state, "ReplayGivesTheSame"
        self.partition = decision.state

    @rule(
        gap=st.integers(0, 3), size=st.integers(1, 12), delivered=st.sampled_from([True, True, True, False])
    )
    def append(self, gap: int, size: int, delivered: bool) -> None:
        first = self.end + gap
        self.batches.append((Span(first, first + size - 1), delivered))
        self.end = first + size

    def readable(self) -> list[tuple[Span, bool]]:
        start = self.partition.next_offset()
        return [batch for batch in self.batches if batch[0].last >= start]

    @precondition(lambda self: self.readable())
    @rule(
        member=st.sampled_from(MEMBERS), most=st.integers(1, 15), whole=st.booleans(), seen=st.integers(1, 4)
    )
    def fetch(self, member: str, most: int, whole: bool, seen: int) -> None:
        batches = self.readable()[:seen]
        before_end = self.partition.end_offset
        taking = Taking(
            member=member,
            max_records=most,
            whole_batches=whole,
            max_locks=self.config.max_record_locks,
            deadline_ms=self.now_ms + LOCK_MS,
        )
        decision = acquire(self.partition, batches, taking)
        self.hold(decision)
        real = {
            offset for span, delivered in batches if delivered for offset in range(span.first, span.last + 1)
        }
        got = [offset for each in decision.reply for offset in range(each.first, each.last + 1)]
        assert got == sorted(set(got))
        for each in decision.reply:
            for offset in range(each.first, each.last + 1):
                entry = self.records.setdefault(offset, Entry())
                assert offset in real, "only what is in the log is delivered"
                assert entry.state is RecordState.AVAILABLE, "OneLeasePerRecord, FinishedForGood"
                entry.state, entry.member = RecordState.ACQUIRED, member
                entry.deliveries += 1
                entry.deadline_ms = self.now_ms + LOCK_MS
                assert entry.deliveries == each.deliveries <= self.config.delivery_count_limit, "LimitHolds"
        if not whole:
            assert len(got) <= most
        self.check_bound(batches, got, before_end, whole)
        for offset in range(before_end, self.partition.end_offset):
            if offset not in real:
                self.records[offset] = Entry(state=RecordState.ARCHIVED)
        self.check_progress(batches, got, before_end)

    def check_bound(
        self, batches: list[tuple[Span, bool]], got: list[int], before_end: int, whole: bool
    ) -> None:
        """What is delivered for the first time exceeds the limit by what is new of one batch at most."""
        new = [offset for offset in got if offset >= before_end]
        if new:
            last = next(span for span, _ in batches if span.first <= new[-1] <= span.last)
            spare = sum(offset >= last.first for offset in new) if whole else 0
            assert self.partition.in_flight - spare <= self.config.max_record_locks, "InFlightIsBounded"

    def check_progress(self, batches: list[tuple[Span, bool]], got: list[int], before_end: int) -> None:
        """Nothing that could have been delivered is held back for no reason."""
        if not got and any(delivered for _, delivered in batches):
            available = [
                offset for offset, entry in self.records.items() if entry.state is RecordState.AVAILABLE
            ]
            covered = {offset for span, _ in batches for offset in range(span.first, span.last + 1)}
            assert not covered & set(available)
            new = [offset for offset in covered if offset >= before_end]
            assert (
                not new
                or self.partition.in_flight >= self.config.max_record_locks
                or all(self.records.get(offset, Entry()).state is RecordState.ARCHIVED for offset in new)
            )

    @rule(
        member=st.sampled_from(MEMBERS),
        first=st.integers(0, 60),
        count=st.integers(1, 10),
        kind=st.sampled_from(AckType),
    )
    def acknowledge(self, member: str, first: int, count: int, kind: AckType) -> None:
        held = sorted(o for o, entry in self.records.items() if entry.state is RecordState.ACQUIRED)
        if held:
            first = held[first % len(held)]
        span = Span(first, first + count - 1)
        entries = [self.records.get(offset, Entry()) for offset in range(first, first + count)]
        is_right = all(e.state is RecordState.ACQUIRED and e.member == member for e in entries)
        decision = acknowledge(self.partition, member, [Ack(span, kind)], self.config, self.now_ms)
        assert decision.reply is (Code.NONE if is_right else Code.INVALID_RECORD_STATE)
        self.hold(decision)
        if is_right:
            for offset in range(first, first + count):
                self.mark(offset, kind)

    def mark(self, offset: int, kind: AckType) -> None:
        entry = self.records[offset]
        if kind is AckType.ACCEPT:
            assert offset not in self.accepted, "AcceptedOnce"
            self.accepted.append(offset)
            entry.state = RecordState.ACKNOWLEDGED
        elif kind is AckType.GAP:
            entry.state = RecordState.ARCHIVED
        elif kind is AckType.RENEW:
            entry.deadline_ms = self.now_ms + LOCK_MS
        elif kind is AckType.REJECT:
            self.give_up(entry)
        else:
            self.free(entry)

    def give_up(self, entry: Entry) -> None:
        entry.state = RecordState.ARCHIVING if self.config.dead_letters else RecordState.ARCHIVED

    def free(self, entry: Entry) -> None:
        if entry.deliveries >= self.config.delivery_count_limit:
            self.give_up(entry)
        else:
            entry.state, entry.member = RecordState.AVAILABLE, ""

    @rule(elapsed=st.integers(1, 150), kept=st.sampled_from(["", *MEMBERS]))
    def wait(self, elapsed: int, kept: str) -> None:
        self.now_ms += elapsed
        self.hold(expire(self.partition, self.config, self.now_ms, is_kept=lambda member: member == kept))
        for entry in self.records.values():
            if entry.state is RecordState.ACQUIRED and entry.deadline_ms <= self.now_ms:
                if entry.member == kept:
                    entry.deadline_ms = self.now_ms + LOCK_MS
                else:
                    self.free(entry)

    @rule(member=st.sampled_from(MEMBERS), delivered=st.booleans())
    def leave(self, member: str, delivered: bool) -> None:
        self.hold(release(self.partition, member, self.config, delivered=delivered))
        for entry in self.records.values():
            if entry.state is RecordState.ACQUIRED and entry.member == member:
                if delivered:
                    self.free(entry)
                else:
                    entry.state, entry.member = RecordState.AVAILABLE, ""
                    entry.deliveries -= 1

    @precondition(lambda self: given_up(self.partition) and self.partition.burial is None)
    @rule(most=st.integers(1, 3))
    def bury(self, most: int) -> None:
        spans = tuple(Span(run.first, run.last) for run in given_up(self.partition)[:most])
        burial = Burial(
            topic="dlq.g", partition=0, producer_id=1, sequence=self.partition.sequence, spans=spans
        )
        self.hold(begin_burial(self.partition, burial))

    @precondition(lambda self: self.partition.burial is not None)
    @rule()
    def buried_at_last(self) -> None:
        burial = self.partition.burial
        assert burial is not None
        self.hold(finish_burial(self.partition))
        for span in burial.spans:
            for offset in range(span.first, span.last + 1):
                assert offset not in self.buried and offset not in self.accepted
                assert self.records[offset].state is RecordState.ARCHIVING
                self.records[offset].state = RecordState.ARCHIVED
                self.buried.append(offset)

    @rule()
    def restart(self) -> None:
        event = decode(*encode(SharePartitionSaved(partition=self.partition)))
        assert isinstance(event, SharePartitionSaved)
        self.partition = woken(event.partition, self.config, self.now_ms)
        for entry in self.records.values():
            if entry.state is RecordState.ACQUIRED:
                entry.deadline_ms = self.now_ms + LOCK_MS

    @precondition(lambda self: len(self.batches) > 3)
    @rule()
    def retain(self) -> None:
        """The log loses its first batch; rarely, since what is lost proves nothing."""
        self.log_start = self.batches.pop(0)[0].last + 1
        self.hold(cut(self.partition, self.log_start))
        for offset in [offset for offset in self.records if offset < self.log_start]:
            del self.records[offset]

    @invariant()
    def agrees_with_the_model(self) -> None:
        partition = getattr(self, "partition", None)
        if partition is None:
            return
        expected = partition.start_offset
        for run in partition.runs:
            assert run.first == expected and run.last >= run.first, "the window has no gaps"
            expected = run.last + 1
            for offset in range(run.first, run.last + 1):
                entry = self.records[offset]
                assert entry.state is run.state, (offset, entry, run)
                if run.state is RecordState.ACQUIRED:
                    assert (entry.member, entry.deliveries) == (run.member, run.deliveries)
        finished = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
        for offset, entry in self.records.items():
            assert offset >= partition.start_offset or entry.state in finished
        assert not partition.runs or partition.runs[0].state not in finished
        assert len(partition.runs) <= 2 * partition.in_flight + 1, "BoundedRuns"
        self.starts.append(partition.start_offset)
        assert self.starts[-1] >= self.starts[-2], "StartOnlyGrows"


TestShareMachine = ShareMachine.TestCase
TestShareMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@pytest.mark.slow
def test_many_more_lives_of_a_share_partition() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        ShareMachine, settings=settings(max_examples=3000, stateful_step_count=60, deadline=None)
    )
