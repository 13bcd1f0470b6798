"""The table of producers alone: Kafka's rules for sequences, epochs, transactions; its bytes."""

import pytest

from headrace.errors import CorruptionError, RequestError
from headrace.records import Marker
from headrace.storage.producers.aborted_transactions import AbortedIndex, AbortedTransaction
from headrace.storage.producers.table import (
    AppendedMarker,
    OpenTransaction,
    ProducerBatch,
    ProducerTable,
    last_sequence,
)

OUT_OF_ORDER, BAD_EPOCH, BAD_STATE, COORDINATOR_FENCED, UNKNOWN_PRODUCER = 45, 47, 48, 52, 59
LAST = 2**31 - 1


def sent(sequence, count=1, *, producer=7, epoch=0, base=0, transactional=False):
    last = last_sequence(sequence, count - 1)
    return ProducerBatch(producer, epoch, sequence, last, base, base + count - 1, base, transactional)


def code_of(call, *args):
    with pytest.raises(RequestError) as caught:
        call(*args)
    return caught.value.code


def table_of(*batches):
    table = ProducerTable()
    for batch in batches:
        assert table.check(batch) is None
        table.add(
            batch._replace(base_offset=table.next_offset, last_offset=table.next_offset + _delta(batch))
        )
    return table


def _delta(batch):
    return batch.last_offset - batch.base_offset


def marker(commit, *, producer=7, epoch=0, coordinator=0):
    return Marker(producer, epoch, coordinator, commit)


def test_sequence_numbers_follow_each_other():
    table = table_of(sent(0, 3), sent(3, 2))
    assert table.check(sent(5)) is None
    assert code_of(table.check, sent(6)) == OUT_OF_ORDER


def test_an_unknown_producer_begins_where_it_likes():
    assert ProducerTable().check(sent(41, epoch=3)) is None


def test_each_of_the_last_five_batches_is_known_again_and_no_older_one():
    table = table_of(*(sent(number) for number in range(7)))
    for number in range(2, 7):
        assert table.check(sent(number)).base_offset == number
    assert code_of(table.check, sent(1)) == OUT_OF_ORDER


@pytest.mark.parametrize("commit", [True, False])
def test_a_batch_of_a_transaction_that_has_ended_is_not_known_again(commit):
    """librdkafka gives sequence numbers of records that it dropped in an abort to the next transaction."""
    table = table_of(sent(0, transactional=True))
    assert table.check(sent(0, transactional=True)).base_offset == 0
    table.end(AppendedMarker(marker(commit), table.next_offset, 0))
    assert code_of(table.check, sent(0, transactional=True)) == UNKNOWN_PRODUCER
    table.add(sent(1, base=table.next_offset, transactional=True))
    assert code_of(table.check, sent(0, transactional=True)) == UNKNOWN_PRODUCER
    assert code_of(table.check, sent(3, transactional=True)) == OUT_OF_ORDER
    assert table.check(sent(1, transactional=True)).base_offset == 2


def test_a_batch_that_repeats_only_a_part_of_another_is_no_duplicate():
    table = table_of(sent(0, 3))
    assert code_of(table.check, sent(0, 2)) == OUT_OF_ORDER
    assert code_of(table.check, sent(1, 2)) == OUT_OF_ORDER


def test_sequence_numbers_wrap_around():
    table = table_of(sent(LAST - 1, 4))
    assert table.check(sent(LAST - 1, 4)).last_sequence == 1
    assert table.check(sent(2)) is None
    table = table_of(sent(LAST))
    assert table.check(sent(0)) is None
    assert code_of(table.check, sent(1)) == OUT_OF_ORDER


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one():
    table = table_of(sent(0), sent(1))
    assert code_of(table.check, sent(2, epoch=1)) == OUT_OF_ORDER
    table = table_of(sent(0), sent(1), sent(0, epoch=1))
    assert code_of(table.check, sent(2)) == BAD_EPOCH
    assert code_of(table.check, sent(1)) == BAD_EPOCH  # not even a duplicate is answered
    assert table.check(sent(1, epoch=1)) is None


def test_producers_do_not_disturb_each_other():
    table = table_of(sent(0), sent(0, producer=8), sent(1))
    assert table.check(sent(1, producer=8)) is None
    assert code_of(table.check, sent(2, producer=8)) == OUT_OF_ORDER


def test_a_transaction_is_open_from_its_first_batch_to_its_marker():
    table = table_of(sent(0), sent(1, transactional=True), sent(2, 2, transactional=True))
    assert table.open_transactions() == [OpenTransaction(7, 0, 1)]
    assert table.last_stable_offset() == 1
    assert table.end(AppendedMarker(marker(True), 4, 0)) is None
    assert table.last_stable_offset() == table.next_offset == 5


def test_an_abort_tells_the_range_that_is_void_and_one_without_records_tells_nothing():
    table = table_of(sent(0, 3, transactional=True))
    assert table.end(AppendedMarker(marker(False), 3, 0)) == AbortedTransaction(7, 0, 3)
    assert table.end(AppendedMarker(marker(False), 4, 0)) is None
    assert table.next_offset == 5


def test_the_last_stable_offset_is_that_of_the_transaction_begun_first():
    table = table_of(sent(0, transactional=True), sent(0, producer=8, transactional=True))
    table.end(AppendedMarker(marker(True), 2, 0))
    assert table.last_stable_offset() == 1
    table.add(sent(1, base=3, transactional=True))
    assert table.last_stable_offset() == 1
    table.end(AppendedMarker(marker(True, producer=8), 4, 0))
    assert table.last_stable_offset() == 3


def test_a_batch_outside_the_open_transaction_of_its_producer_is_refused():
    table = table_of(sent(0, transactional=True))
    assert code_of(table.check, sent(1)) == BAD_STATE
    assert table.check(sent(1, transactional=True)) is None
    assert table.check(sent(0, producer=8)) is None


def test_a_marker_with_a_new_epoch_fences_what_was_sent_before_it():
    table = table_of(sent(0, transactional=True))
    table.end(AppendedMarker(marker(True, epoch=1), 1, 0))
    assert code_of(table.check, sent(1, transactional=True)) == BAD_EPOCH
    assert code_of(table.check, sent(1, epoch=1, transactional=True)) == OUT_OF_ORDER
    assert table.check(sent(0, epoch=1, transactional=True)) is None


def test_after_a_marker_of_the_same_epoch_the_sequence_goes_on():
    table = table_of(sent(0, transactional=True))
    table.end(AppendedMarker(marker(True), 1, 0))
    assert table.check(sent(1, transactional=True)) is None


def test_markers_of_an_old_producer_or_an_old_coordinator_are_refused():
    table = table_of(sent(0, epoch=4, transactional=True))
    assert code_of(table.check_marker, marker(True, epoch=3)) == BAD_EPOCH
    table.end(AppendedMarker(marker(True, epoch=4, coordinator=2), 1, 0))
    assert code_of(table.check_marker, marker(True, epoch=4, coordinator=1)) == COORDINATOR_FENCED
    table.check_marker(marker(True, epoch=4, coordinator=2))


def test_idle_producers_are_forgotten_but_not_those_with_an_open_transaction():
    table = ProducerTable()
    table.add(sent(0), 100)
    table.add(sent(0, producer=8, base=1, transactional=True), 100)
    table.add(sent(0, producer=9, base=2), 300)
    table.forget_idle(200, 1000)
    assert [state.producer_id for state in table] == [8, 9]
    assert table.check(sent(55)) is None


def test_a_producer_read_back_from_the_log_counts_as_heard_of_now():
    table = table_of(sent(0))
    table.forget_idle(900, 1000)
    assert len(table) == 1
    table.forget_idle(1100, 1200)
    assert len(table) == 0


def test_a_copy_goes_its_own_way():
    table = table_of(sent(0), sent(1, transactional=True))
    copy = table.copy()
    copy.add(sent(2, base=2, transactional=True))
    copy.end(AppendedMarker(marker(True), 3, 0))
    assert table.next_offset == 2
    assert table.check(sent(2, transactional=True)) is None
    assert table.open_transactions() == [OpenTransaction(7, 0, 1)]
    assert copy.open_transactions() == []


def test_a_table_is_the_same_after_encoding():
    table = table_of(
        *(sent(number, 2) for number in range(0, 16, 2)),
        sent(0, producer=9, transactional=True),
        sent(0, producer=8, transactional=True),
        sent(0, epoch=1, transactional=True),
    )
    table.end(AppendedMarker(marker(False, producer=9, coordinator=3), table.next_offset, 5))
    again = ProducerTable.decode(table.encode())
    assert list(again) == list(table)
    assert again.open_transactions() == table.open_transactions()
    assert again.next_offset == table.next_offset
    assert again.check(sent(0, epoch=1)) == table.check(sent(0, epoch=1))
    assert again.encode() == table.encode()


def test_bytes_that_are_no_table_are_refused():
    data = table_of(sent(0)).encode()
    for bad in (b"", data[:-1], data + b"x"):
        with pytest.raises(CorruptionError):
            ProducerTable.decode(bad)


# -- aborted transactions


def test_a_reader_is_told_of_the_aborted_transactions_it_may_meet():
    index = AbortedIndex()
    index.add(AbortedTransaction(1, 10, 20), 15)
    index.add(AbortedTransaction(2, 15, 30), 31)
    index.add(AbortedTransaction(1, 40, 50), 51)
    found = [(start, end, [each.last_offset for each in index.find(start, end)]) for start, end in PAIRS]
    assert found == [(0, 10, []), (0, 11, [20]), (20, 21, [20, 30]), (21, 100, [30, 50]), (51, 100, [])]


PAIRS = [(0, 10), (0, 11), (20, 21), (21, 100), (51, 100)]


def test_a_search_goes_on_past_a_transaction_that_began_late_and_ended_early():
    index = AbortedIndex()
    index.add(AbortedTransaction(1, 50, 51), 5)  # another one is open since 5
    index.add(AbortedTransaction(2, 5, 60), 61)
    assert [each.producer_id for each in index.find(0, 10)] == [2]


def test_aborted_transactions_below_the_log_start_are_forgotten():
    index = AbortedIndex()
    index.add(AbortedTransaction(1, 10, 20), 15)
    index.add(AbortedTransaction(2, 15, 30), 31)
    index.forget_before(21)
    assert [each.producer_id for each in index.find(0, 100)] == [2]
    assert AbortedIndex(index.encode()).find(0, 100) == index.find(0, 100)
