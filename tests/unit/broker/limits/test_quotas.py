import pytest

from headrace.broker.limits.quotas import CONSUMER, MOST_THROTTLE_MS, PRODUCER, Bucket, changed
from headrace.errors import RequestError


def test_a_second_worth_may_come_at_once_and_the_rest_is_waited_for():
    bucket = Bucket(0)
    assert bucket.charge(1000, 1000, 0) == 0
    assert bucket.charge(500, 1000, 0) == 500
    assert bucket.charge(0, 1000, 500) == 0  # waited for


def test_what_is_owed_adds_up_and_drains_with_time():
    bucket = Bucket(0)
    assert bucket.charge(3000, 1000, 0) == 2000
    assert bucket.charge(1000, 1000, 1000) == 2000
    assert bucket.charge(100, 1000, 60_000) == 0


def test_whoever_waits_as_told_moves_at_the_rate():
    bucket, now_ms, moved = Bucket(0), 0, 0
    while now_ms < 100_000:
        moved += 7000
        now_ms += bucket.charge(7000, 1000, now_ms)
    assert moved / (now_ms / 1000) == pytest.approx(1000, rel=0.02)


def test_no_wait_is_longer_than_a_client_bears():
    assert Bucket(0).charge(10**9, 1e-300, 0) == MOST_THROTTLE_MS


def test_rates_are_set_and_removed_one_by_one():
    table = changed({}, "a", {PRODUCER: 5.0, CONSUMER: 6.0})
    table = changed(table, None, {PRODUCER: 9.0})
    table = changed(table, "a", {PRODUCER: None})
    assert table == {"a": {CONSUMER: 6.0}, None: {PRODUCER: 9.0}}
    assert changed(table, "a", {CONSUMER: None}) == {None: {PRODUCER: 9.0}}


@pytest.mark.parametrize("changes", [{"request_percentage": 1.0}, {PRODUCER: 0.0}, {PRODUCER: float("nan")}])
def test_what_cannot_be_is_refused(changes):
    with pytest.raises(RequestError):
        changed({}, "a", changes)
