"""Refused changes: so many records a minute for each caller, and one that sums up the others."""

from headrace.console.server.audit_log import summary
from headrace.console.server.refusals import SPAN_MS, Caller, Refusals

ADA = Caller(name="ada", role="reader", address="10.0.0.1")


def refused(refusals, caller=ADA, times=1, now_ms=0, action="POST /v1/topics"):
    return sum(refusals.is_recorded(caller, action, 403, now_ms) for _ in range(times))


def test_a_million_refusals_in_a_minute_are_so_many_records_and_one_that_counts_the_rest():
    refusals = Refusals(20)
    assert refused(refusals, times=1_000_000) == 20
    assert list(refusals.pop_ended(SPAN_MS - 1)) == []
    ((caller, more),) = refusals.pop_ended(SPAN_MS)
    assert (caller, sum(more.actions.values())) == (ADA, 999_980)
    assert list(refusals.pop_ended(2 * SPAN_MS)) == []


def test_few_refusals_each_have_a_record_and_need_no_sum():
    refusals = Refusals(20)
    for minute in range(5):
        assert refused(refusals, times=20, now_ms=minute * SPAN_MS) == 20
        assert list(refusals.pop_ended((minute + 1) * SPAN_MS)) == []


def test_a_caller_takes_nothing_from_another():
    refusals, bob = Refusals(5), Caller(name="bob", role="writer", address="10.0.0.1")
    elsewhere = Caller(name="ada", role="reader", address="10.0.0.2")
    assert [refused(refusals, each, times=100) for each in (ADA, bob, elsewhere)] == [5, 5, 5]
    assert {caller: sum(more.actions.values()) for caller, more in refusals.pop_ended()} == {
        ADA: 95,
        bob: 95,
        elsewhere: 95,
    }


def test_addresses_without_end_share_one_count_and_none_is_lost():
    refusals = Refusals(5, most_callers=10)
    recorded = sum(
        refused(refusals, Caller(name="ada", role="reader", address=f"::{each}")) for each in range(1_000)
    )
    assert recorded == 10 + 5
    ((caller, more),) = refusals.pop_ended(SPAN_MS)
    assert (caller.address, sum(more.actions.values())) == (None, 985)


def test_the_record_of_several_says_how_many_of_what_and_when():
    refusals = Refusals(1)
    for now_ms, action in (
        (0, "POST /v1/topics"),
        (1_000, "POST /v1/topics"),
        (9_000, "DELETE /v1/topics/{topic}"),
    ):
        refused(refusals, now_ms=now_ms, action=action)
    ((caller, more),) = refusals.pop_ended(SPAN_MS)
    found = summary(caller, more, 1_767_225_660_000, SPAN_MS)
    assert (found["who"], found["from"], found["action"]) == ("ada", "10.0.0.1", "2 more refused")
    assert found["notes"] == {
        "refused": 2,
        "first": "2026-01-01T00:00:01.000Z",
        "last": "2026-01-01T00:00:09.000Z",
        "actions": {"POST /v1/topics": 1, "DELETE /v1/topics/{topic}": 1},
    }
