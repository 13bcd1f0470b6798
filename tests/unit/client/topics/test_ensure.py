"""A topic that was created is waited for until its broker lists it."""

from concurrent.futures import Future

import pytest

from headrace.client.topics.ensure import _create, wait_listed
from headrace.errors import RetriableError


class Broker:
    """Creates what it is asked for, up to so many at a time; of more, nothing in time."""

    def __init__(self, most: int) -> None:
        self._most = most

    def create_topics(self, names, operation_timeout):
        made = {each: Future() for each in names}
        for each in made.values():
            if len(names) <= self._most:
                each.set_result(None)
        return made


def test_many_topics_are_created_a_few_at_a_time():
    names = [f"t{number}" for number in range(1001)]
    assert _create(Broker(most=50), names, timeout_s=60) == set(names)


def test_a_topic_that_takes_too_long_is_tried_again_by_the_caller():
    with pytest.raises(RetriableError, match="'t' was not created within 0 s"):
        _create(Broker(most=0), ["t"], timeout_s=0)


def test_what_was_created_is_waited_for_until_all_of_it_is_listed():
    answers = iter([{"old": 1}, {"old": 1, "a": 1}, {"old": 1, "a": 1, "b": 1}])
    assert wait_listed({"a", "b"}, lambda: next(answers), timeout_s=60)
    assert list(answers) == [], "asked until both were there, and not again"


def test_what_this_user_may_not_see_is_not_waited_for_for_ever():
    assert not wait_listed({"hidden"}, lambda: {"old": 1}, timeout_s=0)


def test_nobody_is_asked_where_nothing_was_created():
    assert wait_listed((), lambda: 1 / 0, timeout_s=60)
