"""The table of a connection's states: what may follow what, and what never may."""

import pytest

from headrace.broker.connection.states import NEXT, Event, State

ENDED = (State.CLOSING, State.CLOSED)


def reachable_from(state: State, *, without: tuple[Event, ...] = ()) -> set[State]:
    seen, left = {state}, [state]
    while left:
        for event, following in NEXT[left.pop()].items():
            if event not in without and following not in seen:
                seen.add(following)
                left.append(following)
    return seen


def ways_into(wanted: State) -> set[tuple[State, Event]]:
    return {
        (state, event)
        for state, row in NEXT.items()
        for event, following in row.items()
        if following is wanted
    }


def test_every_state_has_its_row_and_can_be_reached_from_a_login():
    assert NEXT.keys() == set(State)
    assert reachable_from(State.LOGIN) == set(State)


@pytest.mark.parametrize("state", State)
def test_a_connection_may_be_lost_or_fail_at_any_time_and_a_request_may_arrive(state):
    assert NEXT[state][Event.LOST] is State.CLOSED
    assert NEXT[state][Event.FAILED] in ENDED
    assert Event.QUEUED in NEXT[state]


def test_a_connection_that_is_closed_stays_closed():
    assert reachable_from(State.CLOSED) == {State.CLOSED}
    assert reachable_from(State.CLOSING) == {State.CLOSING, State.CLOSED}


def test_a_request_is_served_by_the_fast_path_only_behind_everything_that_the_task_had_to_do():
    assert ways_into(State.IDLE) == {
        (State.TASK, Event.DRAINED),
        (State.HELD, Event.RELEASED),
    }
    assert ways_into(State.HELD) == {
        (State.IDLE, Event.TAKEN),
        (State.HELD, Event.QUEUED),
    }


def test_nothing_is_served_to_a_client_that_must_log_in_until_it_has():
    before_login = reachable_from(State.LOGIN, without=(Event.IDENTIFIED,))
    assert before_login == {State.LOGIN, *ENDED}


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (State.TASK, Event.TAKEN),
        (State.IDLE, Event.DRAINED),
        (State.IDLE, Event.RELEASED),
        (State.HELD, Event.TAKEN),
        (State.LOGIN, Event.DRAINED),
        (State.CLOSED, Event.IDENTIFIED),
    ],
)
def test_what_cannot_happen_is_our_mistake_and_is_named(state, event):
    what = f"{event.name} cannot happen to a connection in state {state.name}"
    with pytest.raises(LookupError, match=what):
        NEXT[state][event]
