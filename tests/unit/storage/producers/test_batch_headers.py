"""What a walk over headers notes of producers, and that it does not matter which walk noted it."""

import pytest

from headrace.records import Marker, Record, encode_batch
from headrace.storage.producers import batch_headers as producer_facts
from headrace.storage.producers.batch_headers import PRODUCER_HEADER, ProducerHeaders
from headrace.testing.batches import commit


def sent(sequence, *, producer=1, transactional=False):
    records = [Record(0, 1000, None, b"v")]
    return encode_batch(
        records, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=transactional
    )


def no_marker(position, size):
    raise AssertionError(f"nothing to read at {position}, {size} bytes")


def scanned(*batches, most=100):
    headers = ProducerHeaders(most)
    for number, batch in enumerate(batches):
        headers.note(PRODUCER_HEADER.unpack_from(batch), number)
    return headers


def test_outside_of_transactions_the_last_five_of_each_producer_are_kept():
    headers = scanned(*[sent(n, producer=n % 2) for n in range(20)])
    found = [(entry.producer_id, entry.first_sequence) for entry in headers.entries(0, no_marker)]
    assert found == [(0, n) for n in range(10, 20, 2)] + [(1, n) for n in range(11, 20, 2)]


def test_a_transaction_is_kept_whole_and_behind_what_its_producer_sent_before():
    headers = scanned(sent(0), *[sent(n, transactional=True) for n in range(1, 9)], sent(9))
    entries = list(headers.entries(0, no_marker))
    assert [entry.first_sequence for entry in entries] == list(range(10))
    assert [entry.transactional for entry in entries] == [False, *[True] * 8, False]


def test_more_than_may_be_kept_is_not_whole():
    transaction = [sent(n, transactional=True) for n in range(4)]
    assert scanned(*transaction, most=4).is_whole
    assert not scanned(*transaction, sent(4, transactional=True), most=4).is_whole


@pytest.mark.parametrize("most", [0, 3, 1000])
def test_producers_are_known_after_a_crash_however_much_the_scan_could_note(
    disk, open_log, monkeypatch, most
):
    log = open_log(disk)
    for sequence in range(4):
        commit(log, sent(sequence), sent(sequence, producer=2, transactional=True))
    log.append_marker(Marker(2, 0, 0, commit=False), now_ms=1)
    commit(log, sent(4, producer=2, transactional=True), sent(0, producer=3))
    monkeypatch.setattr(producer_facts, "MOST", most)
    again = open_log(disk.after_kill())
    assert sorted(again.producers()) == sorted(log.producers())
    assert again.open_transactions() == log.open_transactions()
    assert again.aborted(0, 100) == log.aborted(0, 100) != []
    assert again.last_stable_offset == log.last_stable_offset
