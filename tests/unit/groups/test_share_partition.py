"""The share partition: leases, acknowledgements, limits, dead letters, and what a restart finds."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from headrace.groups import Code
from headrace.groups.share import (
    Ack,
    AckType,
    Acquired,
    Burial,
    RecordState,
    ShareConfig,
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
    spelled_out,
    woken,
)
from headrace.groups.share.events import SharePartitionSaved
from headrace.groups.share.journal import decode, encode

CONFIG = ShareConfig(lock_duration_ms=1000, delivery_count_limit=3)
EMPTY = SharePartition(group_id="g", topic_id=UUID(int=1), partition=0, start_offset=0)


def batches(*spans: tuple[int, int]) -> list[tuple[Span, bool]]:
    return [(Span(*span), True) for span in spans]


def take(
    partition: SharePartition,
    spans: Sequence[tuple[Span, bool]],
    member: str = "a",
    *,
    most: int = 100,
    whole: bool = True,
    locks: int = 1000,
    deadline_ms: int = 1000,
) -> tuple[SharePartition, tuple[Acquired, ...]]:
    taking = Taking(
        member=member, max_records=most, whole_batches=whole, max_locks=locks, deadline_ms=deadline_ms
    )
    decision = acquire(partition, spans, taking)
    return decision.state, decision.reply


def acked(
    partition: SharePartition,
    first: int,
    last: int,
    kind: AckType,
    member: str = "a",
    config: ShareConfig = CONFIG,
) -> SharePartition:
    decision = acknowledge(partition, member, [Ack(Span(first, last), kind)], config, 0)
    assert decision.reply is Code.NONE
    return decision.state


def states(partition: SharePartition) -> list[tuple[int, int, str, int]]:
    return [(run.first, run.last, run.state.value, run.deliveries) for run in partition.runs]


# --- leases -------------------------------------------------------------------------------------


def test_a_record_has_one_reader_at_a_time() -> None:
    partition, got = take(EMPTY, batches((0, 9)))
    assert got == (Acquired(first=0, last=9, deliveries=1),)
    partition, got = take(partition, batches((0, 9), (10, 12)), "b")
    assert got == (Acquired(first=10, last=12, deliveries=1),)


def test_whole_batches_may_exceed_the_records_asked_for_and_single_records_do_not() -> None:
    _, whole = take(EMPTY, batches((0, 9), (10, 19)), most=5)
    assert whole == (Acquired(first=0, last=9, deliveries=1),)
    _, single = take(EMPTY, batches((0, 9), (10, 19)), most=5, whole=False)
    assert single == (Acquired(first=0, last=4, deliveries=1),)


def test_no_more_records_are_in_flight_than_allowed() -> None:
    partition, got = take(EMPTY, batches((0, 99)), whole=False, locks=30)
    assert got == (Acquired(first=0, last=29, deliveries=1),)
    partition, got = take(partition, batches((0, 99)), "b", whole=False, locks=30)
    assert got == () and partition.end_offset == 30
    partition = acked(partition, 0, 4, AckType.ACCEPT)
    _, got = take(partition, batches((0, 99)), "b", whole=False, locks=30)
    assert got == (Acquired(first=30, last=34, deliveries=1),)


def test_a_batch_is_not_cut_by_the_records_that_may_be_in_flight_and_the_next_one_waits() -> None:
    partition, got = take(EMPTY, batches((0, 19), (20, 59), (60, 69)), locks=30)
    assert got == (Acquired(first=0, last=59, deliveries=1),)
    partition, got = take(partition, batches((60, 69)), "b", locks=30)
    assert got == () and partition.end_offset == 60
    partition = acked(partition, 0, 30, AckType.ACCEPT)
    _, got = take(partition, batches((60, 69)), "b", locks=30)
    assert got == (Acquired(first=60, last=69, deliveries=1),)


def test_records_behind_one_that_is_held_are_finished_without_filling_the_memory() -> None:
    partition, _ = take(EMPTY, batches((0, 0)))
    for first in range(1, 2000, 10):
        partition, _ = take(partition, batches((first, first + 9)), "b", locks=20)
        partition = acked(partition, first, first + 9, AckType.ACCEPT, "b")
    assert len(partition.runs) == 2
    assert partition.start_offset == 0 and partition.finished == 2000


def test_offsets_without_records_are_archived() -> None:
    spans = [(Span(2, 3), True), (Span(4, 4), False), (Span(8, 8), True)]
    partition, got = take(EMPTY, spans)
    assert got == (Acquired(first=2, last=3, deliveries=1), Acquired(first=8, last=8, deliveries=1))
    assert states(partition)[1] == (4, 7, "archived", 0)
    assert partition.start_offset == 2


# --- acknowledgements ---------------------------------------------------------------------------


def test_accepted_records_are_finished_and_the_start_moves() -> None:
    partition, _ = take(EMPTY, batches((0, 9)))
    partition = acked(partition, 5, 9, AckType.ACCEPT)
    assert partition.start_offset == 0
    partition = acked(partition, 0, 4, AckType.ACCEPT)
    assert partition.start_offset == 10 and partition.runs == ()


def test_a_released_record_goes_to_the_next_with_a_higher_count() -> None:
    partition, _ = take(EMPTY, batches((0, 2)))
    partition = acked(partition, 1, 1, AckType.RELEASE)
    partition, got = take(partition, batches((0, 2)), "b")
    assert got == (Acquired(first=1, last=1, deliveries=2),)


def test_an_acknowledgement_of_what_somebody_else_holds_is_refused_as_a_whole() -> None:
    partition, _ = take(EMPTY, batches((0, 4)))
    partition, _ = take(partition, batches((0, 4), (5, 9)), "b")
    decision = acknowledge(partition, "a", [Ack(Span(0, 9), AckType.ACCEPT)], CONFIG, 0)
    assert decision.reply is Code.INVALID_RECORD_STATE
    assert decision.state == partition and not decision.events


def test_a_late_acknowledgement_never_counts_twice() -> None:
    partition, _ = take(EMPTY, batches((0, 0)))
    partition = expire(partition, CONFIG, 1000, is_kept=lambda _: False).state
    partition, _ = take(partition, batches((0, 0)), "b")
    partition = acked(partition, 0, 0, AckType.ACCEPT, "b")
    assert partition.start_offset == 1
    for member in ("a", "b"):
        late = acknowledge(partition, member, [Ack(Span(0, 0), AckType.ACCEPT)], CONFIG, 0)
        assert late.reply is Code.INVALID_RECORD_STATE


def test_overlapping_acknowledgements_are_a_mistake() -> None:
    partition, _ = take(EMPTY, batches((0, 4)))
    acks = [Ack(Span(0, 2), AckType.ACCEPT), Ack(Span(2, 4), AckType.ACCEPT)]
    assert acknowledge(partition, "a", acks, CONFIG, 0).reply is Code.INVALID_REQUEST


def test_acknowledgement_batches_have_one_kind_or_one_for_each() -> None:
    assert spelled_out(0, 4, [1]) == [Ack(Span(0, 4), AckType.ACCEPT)]
    assert spelled_out(0, 2, [1, 1, 2]) == [
        Ack(Span(0, 1), AckType.ACCEPT),
        Ack(Span(2, 2), AckType.RELEASE),
    ]
    for first, last, kinds in [(0, 2, [1, 1]), (2, 0, [1]), (0, 0, [9]), (0, 0, []), (-1, 0, [1])]:
        assert spelled_out(first, last, kinds) is None


# --- time ---------------------------------------------------------------------------------------


def test_a_lease_ends_in_time_and_renewal_puts_that_off() -> None:
    partition, _ = take(EMPTY, batches((0, 1)), deadline_ms=1000)
    renewed = acknowledge(partition, "a", [Ack(Span(0, 0), AckType.RENEW)], CONFIG, 500)
    assert renewed.reply is Code.NONE
    partition = expire(renewed.state, CONFIG, 1000, is_kept=lambda _: False).state
    assert states(partition) == [(0, 0, "acquired", 1), (1, 1, "available", 1)]
    assert partition.next_deadline_ms() == 1500


def test_a_member_that_heartbeats_may_keep_its_lease() -> None:
    partition, _ = take(EMPTY, batches((0, 1)), deadline_ms=1000)
    decision = expire(partition, CONFIG, 1000, is_kept=lambda member: member == "a")
    assert decision.reply is False and not decision.events
    assert decision.state.next_deadline_ms() == 2000


def test_closing_in_good_order_does_not_count_as_a_delivery_and_vanishing_does() -> None:
    partition, _ = take(EMPTY, batches((0, 1)))
    closed = release(partition, "a", CONFIG, delivered=False).state
    assert states(closed) == [(0, 1, "available", 0)]
    lost = release(partition, "a", CONFIG, delivered=True).state
    assert states(lost) == [(0, 1, "available", 1)]
    assert release(partition, "b", CONFIG, delivered=True).reply is False


def test_a_restart_takes_no_record_from_anybody() -> None:
    partition, _ = take(EMPTY, batches((0, 1)))
    event = decode(*encode(SharePartitionSaved(partition=partition)))
    assert isinstance(event, SharePartitionSaved) and event.partition == partition
    again = woken(event.partition, CONFIG, 50_000)
    assert again.next_deadline_ms() == 51_000
    assert acknowledge(again, "a", [Ack(Span(0, 1), AckType.ACCEPT)], CONFIG, 0).reply is Code.NONE


# --- given up -----------------------------------------------------------------------------------


def given_up_at(*offsets: int) -> SharePartition:
    partition, _ = take(EMPTY, batches((0, 9)))
    for offset in offsets:
        partition = acked(partition, offset, offset, AckType.REJECT)
    return partition


def test_the_last_delivery_that_is_given_back_is_given_up() -> None:
    partition = EMPTY
    for _ in range(CONFIG.delivery_count_limit):
        partition, got = take(partition, batches((0, 0)))
        assert got
        partition = acked(partition, 0, 0, AckType.RELEASE)
    assert [run.state for run in partition.runs] == [RecordState.ARCHIVING]
    assert take(partition, batches((0, 0)))[1] == ()


def test_given_up_without_dead_letters_is_archived_at_once() -> None:
    partition, _ = take(EMPTY, batches((0, 0)))
    partition = acked(partition, 0, 0, AckType.REJECT, config=replace(CONFIG, dead_letters=False))
    assert partition.start_offset == 1


def test_a_record_is_archived_only_when_its_dead_letter_is_written() -> None:
    partition = given_up_at(0, 2)
    assert [(run.first, run.last) for run in given_up(partition)] == [(0, 0), (2, 2)]
    burial = Burial(topic="dlq.g", partition=0, producer_id=7, sequence=5, spans=(Span(0, 0), Span(2, 2)))
    begun = begin_burial(partition, burial)
    assert begun.state.start_offset == 0 and begun.state.burial == burial
    replayed = decode(*encode(begun.events[0]))
    assert isinstance(replayed, SharePartitionSaved) and replayed.partition.burial == burial
    done = finish_burial(begun.state).state
    assert done.start_offset == 1 and done.burial is None
    assert (done.producer_id, done.sequence) == (7, 7)
    assert given_up(done) == []


def test_what_is_given_up_while_dead_letters_are_written_waits_for_the_next_burial() -> None:
    partition = given_up_at(4)
    burial = Burial(topic="dlq.g", partition=0, producer_id=7, sequence=0, spans=(Span(4, 4),))
    partition = begin_burial(partition, burial).state
    partition = acked(partition, 3, 3, AckType.REJECT)
    partition = finish_burial(partition).state
    assert [(run.first, run.last) for run in given_up(partition)] == [(3, 3)]


def test_what_the_log_no_longer_has_is_lost_and_counted() -> None:
    partition, _ = take(EMPTY, batches((0, 9)))
    partition = acked(partition, 1, 3, AckType.ACCEPT)
    decision = cut(partition, 6)
    assert decision.reply == 3
    assert decision.state.start_offset == 6 and decision.state.runs[0].first == 6
    assert cut(decision.state, 6).reply == 0


def test_a_burial_that_the_log_overtook_is_not_repeated_under_its_number() -> None:
    burial = Burial(topic="dlq.g", partition=0, producer_id=7, sequence=5, spans=(Span(0, 0),))
    partition = begin_burial(given_up_at(0), burial).state
    after = cut(partition, 5).state
    assert after.burial is None and after.producer_id == -1
