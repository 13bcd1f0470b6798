"""What has to be said in time is judged only where the test itself was in time."""

from types import SimpleNamespace

import pytest
from tests.integration import standstill
from tests.integration.standstill import judged


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves by hand."""
    now = [0.0]
    monkeypatch.setattr(standstill, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_what_fails_in_time_fails(clock):
    def attempt(limit_s, pulse):
        clock[0] += limit_s - 1
        raise AssertionError("wrong")

    with pytest.raises(AssertionError, match="wrong"):
        judged(attempt, 5, 30)


def test_what_fails_after_a_pause_of_its_own_is_tried_again_with_more_time(clock):
    tried = []

    def attempt(limit_s, pulse):
        tried.append(limit_s)
        clock[0] += 10
        pulse.beat()
        assert limit_s > 10

    judged(attempt, 5, 30)
    assert tried == [5, 30]


def test_a_machine_that_always_stands_still_is_told_of(clock):
    def attempt(limit_s, pulse):
        clock[0] += 100
        raise AssertionError("wrong")

    with pytest.raises(AssertionError, match="stood still"):
        judged(attempt, 5, 30)
