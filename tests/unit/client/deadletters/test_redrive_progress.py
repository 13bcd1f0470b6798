"""Which letters were sent again: all before a place, and single ones behind it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.deadletters.redrive_progress import RedriveProgress
from headrace.errors import RequestError


def test_chosen_letters_are_remembered_and_joined_with_what_stands_before_them():
    sent = RedriveProgress(10).with_chosen([12, 13, 20], first=0)
    assert sent == RedriveProgress(10, ((12, 14), (20, 21)))
    assert [offset for offset in range(25) if sent.has(offset)] == [*range(10), 12, 13, 20]
    assert sent.with_chosen([10, 11], first=0) == RedriveProgress(14, ((20, 21),))
    assert sent.with_all_before(20) == RedriveProgress(21)


def test_what_retention_took_needs_no_remembering():
    assert RedriveProgress(0).with_chosen([7], first=5) == RedriveProgress(5, ((7, 8),))
    assert RedriveProgress(0).with_chosen([5], first=5) == RedriveProgress(6)


def test_how_many_were_sent_counts_only_what_is_still_there():
    assert RedriveProgress(10, ((12, 14),)).ranges(0, 20) == [(0, 10), (12, 14)]
    assert RedriveProgress(10, ((12, 14),)).ranges(13, 20) == [(13, 14)]
    assert RedriveProgress(10, ((12, 14),)).ranges(4, 13) == [(4, 10), (12, 13)]


@given(st.integers(0, 50), st.lists(st.integers(0, 100)), st.integers(0, 20))
def test_every_chosen_letter_and_no_other_is_known_again_from_what_was_committed(start, chosen, first):
    sent = RedriveProgress(start).with_chosen(chosen, first)
    again = RedriveProgress.of(sent.next, sent.to_metadata())
    assert again == sent
    before = max(start, first)
    assert {each for each in range(102) if again.has(each)} == {*range(before), *chosen}


def test_foreign_metadata_tells_nothing():
    assert RedriveProgress.of(5, "somebody's note") == RedriveProgress(5)
    assert RedriveProgress.of(-1001, None) == RedriveProgress(0)


def test_more_single_letters_than_can_be_remembered_are_refused_with_a_way_on():
    with pytest.raises(RequestError, match="redrive all that wait"):
        RedriveProgress(0).with_chosen(range(1, 5_000, 2), first=0).to_metadata()
