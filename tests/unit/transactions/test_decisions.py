"""Decisions about a transactional id, one by one."""

from dataclasses import replace
from uuid import UUID

import pytest

from headrace.errors import CorruptionError
from headrace.groups import Code, GroupSettings
from headrace.groups import transactions as txn
from headrace.groups.transactions import (
    Claim,
    InitRequest,
    Open,
    TransactionalRemoved,
    TransactionalSaved,
    TransactionState,
)
from headrace.groups.transactions.journal import decode, encode
from headrace.groups.transactions.state import MAX_EPOCH

TOPIC = UUID(int=1)
P0, P1 = (TOPIC, 0), (TOPIC, 1)
SETTINGS = GroupSettings()


def init(producer=None, *, expected=None, timeout_ms=1_000, new_id=7, now_ms=0):
    request = InitRequest(transactional_id="t", timeout_ms=timeout_ms, expected=expected)
    return txn.initialize(producer, request, SETTINGS, new_id=new_id, now_ms=now_ms)


def started(*partitions, groups=(), now_ms=0):
    producer = init().producer
    return txn.add(producer, producer.claim, partitions=partitions, groups=groups, now_ms=now_ms).producer


def end(producer, claim=None, *, commit=True, bumps=True, new_id=99):
    claim = claim or producer.claim
    return txn.end(producer, claim, commit=commit, bumps=bumps, new_id=new_id, now_ms=5)


def ended(producer, **how):
    return txn.complete(end(producer, **how).producer).producer


# --- who the producer is ------------------------------------------------------------------------


def test_a_new_transactional_id_gets_the_new_producer_id_with_epoch_zero():
    verdict = init()
    assert (verdict.claim, verdict.save, verdict.error) == (Claim(7, 0), True, Code.NONE)
    assert verdict.producer.state is TransactionState.EMPTY


def test_a_second_instance_gets_the_next_epoch_and_the_first_is_fenced():
    first = init().producer
    second = init(first).producer
    assert second.claim == Claim(7, 1)
    assert txn.add(second, first.claim, partitions=[P0], now_ms=0).error is Code.PRODUCER_FENCED
    assert init(second, expected=first.claim).error is Code.PRODUCER_FENCED


def test_an_instance_that_repeats_its_request_gets_the_same_epoch_again():
    first = init().producer
    second = init(first, expected=first.claim).producer
    again = init(second, expected=first.claim)
    assert (again.claim, again.save, again.error) == (Claim(7, 1), False, Code.NONE)


@pytest.mark.parametrize("timeout_ms", [0, -1, SETTINGS.transaction_max_timeout_ms + 1])
def test_a_time_out_beyond_the_setting_is_refused(timeout_ms):
    assert init(timeout_ms=timeout_ms).error is Code.INVALID_TRANSACTION_TIMEOUT


def test_initialising_aborts_what_is_ongoing_and_waits_for_it():
    verdict = init(started(P0))
    assert (verdict.error, verdict.save) == (None, True)
    assert verdict.producer.state is TransactionState.PREPARE_ABORT
    assert init(verdict.producer).error is None
    assert init(txn.complete(verdict.producer).producer).claim == Claim(7, 2)


def test_the_instance_whose_transaction_was_aborted_may_go_on_under_the_next_epoch():
    verdict = init(started(P0), expected=Claim(7, 0))
    done = txn.complete(verdict.producer).producer
    assert init(done, expected=Claim(7, 0)).claim == Claim(7, 1)


def test_after_the_last_epoch_comes_a_new_producer_id():
    worn = replace(init().producer, claim=Claim(7, MAX_EPOCH))
    assert init(worn, new_id=8).claim == Claim(8, 0)
    assert init(worn, new_id=8, expected=worn.claim).producer.last == worn.claim


# --- what a transaction touches -----------------------------------------------------------------


def test_adding_begins_the_transaction_and_persists_nothing():
    producer = init().producer
    verdict = txn.add(producer, producer.claim, partitions=[P0], now_ms=3)
    assert (verdict.producer.state, verdict.save) == (TransactionState.ONGOING, False)
    assert verdict.producer.ongoing.started_ms == 3


def test_another_producer_id_is_told_so():
    producer = init().producer
    assert txn.add(producer, Claim(8, 0), now_ms=0).error is Code.INVALID_PRODUCER_ID_MAPPING


def test_data_must_have_been_told_of():
    producer = started(P0)
    told = [txn.missing(producer, producer.claim, partitions=frozenset([each])) for each in (P0, P1)]
    assert told == [Code.NONE, Code.INVALID_TXN_STATE]


def test_right_after_a_restart_data_need_not_have_been_told_of():
    producer = replace(init().producer, recovered=True)
    assert txn.missing(producer, producer.claim, partitions=frozenset([P0])) is Code.NONE
    later = ended(replace(started(P0), recovered=True), bumps=False)
    assert txn.missing(later, later.claim, partitions=frozenset([P0])) is Code.INVALID_TXN_STATE


def test_the_next_transaction_begins_while_the_last_is_carried_out_if_epochs_tell_them_apart():
    decided = end(started(P0)).producer
    verdict = txn.add(decided, decided.claim, partitions=[P1], now_ms=6)
    assert (verdict.error, verdict.producer.state) == (Code.NONE, TransactionState.ONGOING)
    assert verdict.producer.unfinished.partitions == {P0}
    assert txn.complete(verdict.producer).producer.ongoing.partitions == {P1}


def test_the_next_transaction_of_the_same_epoch_waits_for_the_last():
    decided = end(started(P0), bumps=False).producer
    assert txn.add(decided, decided.claim, partitions=[P1], now_ms=6).error is None


# --- how it ends --------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_names_everything_the_transaction_touched(commit):
    verdict = end(started(P0, P1, groups=["g"]), commit=commit)
    decided = verdict.producer.unfinished
    assert (verdict.save, decided.commit) == (True, commit)
    assert (decided.partitions, decided.groups) == ({P0, P1}, {"g"})


def test_the_epoch_goes_on_with_each_decision_and_the_marker_carries_it():
    verdict = end(started(P0))
    assert (verdict.claim, verdict.producer.decided.marker_epoch) == (Claim(7, 1), 1)


def test_clients_that_do_not_learn_of_it_keep_their_epoch():
    verdict = end(started(P0), bumps=False)
    assert (verdict.claim, verdict.producer.decided.marker_epoch) == (Claim(7, 0), 0)


def test_the_last_epoch_ends_with_a_new_producer_id_and_a_repeat_learns_of_it():
    worn = replace(started(P0), claim=Claim(7, MAX_EPOCH))
    verdict = end(worn, new_id=8)
    assert (verdict.claim, verdict.producer.decided.marker_epoch) == (Claim(8, 0), MAX_EPOCH + 1)
    again = end(verdict.producer, worn.claim)
    assert (again.error, again.claim, again.save) == (Code.NONE, Claim(8, 0), False)


@pytest.mark.parametrize("bumps", [True, False])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("complete", [True, False])
def test_a_repeated_end_gets_the_same_answer_also_from_the_journal(bumps, commit, complete):
    before = started(P0)
    first = end(before, commit=commit, bumps=bumps)
    known = txn.complete(first.producer).producer if complete else first.producer
    known = decode(*encode(TransactionalSaved(producer=known))).producer
    again = end(known, before.claim, commit=commit, bumps=bumps)
    assert (again.error, again.claim, again.save) == (Code.NONE, first.claim, False)


@pytest.mark.parametrize("bumps", [True, False])
def test_a_committed_transaction_cannot_be_aborted(bumps):
    before = started(P0)
    after = end(before, bumps=bumps).producer
    assert end(after, before.claim, commit=False, bumps=bumps).error is Code.INVALID_TXN_STATE


def test_an_end_of_an_earlier_transaction_does_not_touch_a_later_one():
    before = started(P0)
    later = ended(before)
    later = txn.add(later, later.claim, partitions=[P1], now_ms=9).producer
    verdict = end(later, before.claim)
    assert (verdict.error, verdict.producer) == (Code.PRODUCER_FENCED, later)


def test_a_decision_waits_until_the_one_before_is_carried_out():
    first = end(started(P0)).producer
    second = txn.add(first, first.claim, partitions=[P0], now_ms=6).producer
    assert end(second).error is None
    assert end(txn.complete(second).producer).save


@pytest.mark.parametrize("commit", [True, False])
def test_older_clients_cannot_end_what_never_began(commit):
    assert end(init().producer, commit=commit, bumps=False).error is Code.INVALID_TXN_STATE


def test_aborting_nothing_gives_the_next_epoch_but_committing_nothing_is_refused_in_the_end():
    producer = init().producer
    verdict = end(producer, commit=False)
    assert (verdict.claim, verdict.producer.state) == (Claim(7, 1), TransactionState.COMPLETE_ABORT)
    early = end(producer)
    assert (early.error, early.save, early.claim) == (Code.CONCURRENT_TRANSACTIONS, False, producer.claim)
    assert end(early.producer).error is Code.INVALID_TXN_STATE


@pytest.mark.parametrize("before", [init().producer, ended(started(P0)), end(started(P0)).producer])
def test_a_commit_that_overtakes_its_records_is_sent_away_and_commits_them_the_next_time(before):
    early = end(before).producer
    begun = txn.add(early, early.claim, partitions=[P1], now_ms=5).producer
    verdict = end(txn.complete(begun).producer)
    assert (verdict.error, verdict.producer.unfinished.partitions) == (Code.NONE, {P1})
    following = txn.complete(verdict.producer).producer
    assert end(following).error is Code.CONCURRENT_TRANSACTIONS, "each transaction may come early once"


def test_a_commit_that_overtakes_its_records_after_a_restart_does_not_succeed_without_them():
    producer = recovered(init().producer).producers["t"]
    assert end(producer).error is Code.CONCURRENT_TRANSACTIONS


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced():
    producer = started(P0, now_ms=100)
    assert txn.next_deadline_ms(producer) == 1_100
    assert not txn.expire(producer, 1_099).save
    late = txn.expire(producer, 1_100).producer
    assert late.state is TransactionState.PREPARE_ABORT
    assert end(late, producer.claim).error is Code.PRODUCER_FENCED
    assert end(late, producer.claim, commit=False, bumps=False).error is Code.PRODUCER_FENCED


def test_nobody_works_under_the_epoch_that_fences_the_last_one():
    producer = replace(started(P0), claim=Claim(7, MAX_EPOCH))
    late = txn.complete(txn.fence(producer, now_ms=5).producer).producer
    assert end(late, producer.claim, commit=False).error is Code.PRODUCER_FENCED
    assert txn.add(late, late.claim, partitions=[P0], now_ms=5).error is Code.PRODUCER_FENCED
    assert end(late, commit=False).error is Code.PRODUCER_FENCED
    assert init(late, expected=producer.claim, new_id=8).claim == Claim(8, 0)


def test_an_id_is_forgotten_only_when_it_was_idle_for_long():
    producer = init().producer
    long_ms = SETTINGS.transactional_id_expiration_ms
    assert txn.is_forgettable(producer, SETTINGS, long_ms)
    assert not txn.is_forgettable(producer, SETTINGS, long_ms - 1)
    assert not txn.is_forgettable(started(P0), SETTINGS, long_ms)
    assert not txn.is_forgettable(end(started(P0)).producer, SETTINGS, 2 * long_ms)


# --- after a restart ----------------------------------------------------------------------------


def recovered(producer, *opened):
    saved = decode(*encode(TransactionalSaved(producer=producer))).producer
    return txn.recover({"t": saved}, opened, restarted=True, now_ms=50)


def test_what_is_open_under_the_current_epoch_goes_on():
    opened = Open(claim=Claim(7, 0), partition=P0), Open(claim=Claim(7, 0), group="g")
    producer = recovered(started(P0), *opened).producers["t"]
    assert producer.state is TransactionState.ONGOING
    assert (producer.ongoing.partitions, producer.ongoing.groups) == ({P0}, {"g"})
    assert producer.ongoing.started_ms == 50


def test_a_decision_is_carried_out_where_it_was_not_yet():
    decided = end(started(P0, P1)).producer
    producer = recovered(decided, Open(claim=Claim(7, 0), partition=P1)).producers["t"]
    assert producer.unfinished.partitions == {P1}


def test_the_transaction_after_an_unfinished_decision_is_told_apart_by_its_epoch():
    decided = end(started(P0, P1)).producer
    opened = Open(claim=Claim(7, 0), partition=P1), Open(claim=Claim(7, 1), partition=P0)
    producer = recovered(decided, *opened).producers["t"]
    assert producer.unfinished.partitions == {P1}
    assert producer.ongoing.partitions == {P0}


def decided_before(**ends):
    """A decision of an older client, whose epoch stays, and where its partitions ended."""
    producer = started(P0, P1)
    ends = {P0: ends["first"], P1: ends["second"]}
    return txn.end(producer, producer.claim, commit=True, bumps=False, ends=ends, new_id=99, now_ms=5)


def test_the_transaction_after_the_decision_of_an_older_client_is_told_apart_by_where_it_begins():
    decided = decided_before(first=10, second=20).producer
    opened = (
        Open(claim=Claim(7, 0), partition=P0, first_offset=11),
        Open(claim=Claim(7, 0), partition=P1, first_offset=19),
    )
    producer = recovered(decided, *opened).producers["t"]
    assert producer.unfinished.partitions == {P1}
    assert producer.ongoing.partitions == {P0}


def test_an_older_client_begins_at_once_unless_it_committed_offsets():
    decided = decided_before(first=10, second=20).producer
    assert txn.add(decided, decided.claim, partitions=[P0], now_ms=6).error is Code.NONE
    assert not txn.complete(decided).save
    producer = started(P0, groups=["g"])
    held = txn.end(producer, producer.claim, commit=True, bumps=False, ends={P0: 3}, new_id=99, now_ms=5)
    assert txn.add(held.producer, held.claim, partitions=[P0], now_ms=6).error is None
    assert txn.complete(held.producer).save
    # Until that is on disk nobody may be told that the next has begun.
    assert not txn.complete(held.producer).producer.decided.separable
    assert txn.complete(decided).producer.decided.separable


def test_what_is_open_of_an_older_epoch_or_of_nobody_is_aborted():
    second = init(init().producer).producer
    old, unknown = Open(claim=Claim(7, 0), partition=P0), Open(claim=Claim(55, 3), partition=P1)
    found = recovered(second, old, unknown)
    assert [(stray.opened, stray.marker_epoch) for stray in found.strays] == [(old, 1), (unknown, 3)]
    assert found.producers["t"].state is TransactionState.EMPTY


@pytest.mark.parametrize("commit", [True, False])
def test_after_a_restart_a_transaction_that_left_no_record_can_be_ended(commit):
    producer = recovered(init().producer).producers["t"]
    assert end(producer, commit=commit, bumps=False).error is Code.NONE


# --- records ------------------------------------------------------------------------------------


def test_what_is_persisted_comes_back_but_for_what_is_ongoing():
    producer = end(started(P0, P1, groups=["g", "h"])).producer
    assert decode(*encode(TransactionalSaved(producer=producer))).producer == replace(producer, changed_ms=0)
    assert decode(*encode(TransactionalRemoved(transactional_id="t"))).transactional_id == "t"
    older = decided_before(first=3, second=4).producer
    assert decode(*encode(TransactionalSaved(producer=older))).producer == replace(older, changed_ms=0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b"{}"),
        (b'{"v":2,"kind":"transaction","id":"t"}', None),
        (b'{"v":1,"kind":"group","id":"t"}', None),
        (b'{"v":1,"kind":"transaction","id":"t"}', b'{"v":1}'),
    ],
)
def test_what_is_no_record_of_transactions_is_refused(key, value):
    with pytest.raises(CorruptionError, match="record"):
        decode(key, value)
