"""A topic that was created is waited for until its broker lists it."""

from headrace.client.topics.ensure import wait_listed


def test_what_was_created_is_waited_for_until_all_of_it_is_listed():
    answers = iter([{"old": 1}, {"old": 1, "a": 1}, {"old": 1, "a": 1, "b": 1}])
    assert wait_listed({"a", "b"}, lambda: next(answers), timeout_s=60)
    assert list(answers) == [], "asked until both were there, and not again"


def test_what_this_user_may_not_see_is_not_waited_for_for_ever():
    assert not wait_listed({"hidden"}, lambda: {"old": 1}, timeout_s=0)


def test_nobody_is_asked_where_nothing_was_created():
    assert wait_listed((), lambda: 1 / 0, timeout_s=60)
