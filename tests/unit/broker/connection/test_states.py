"""The table of a connection's states: what may follow what, and what never may."""

import pytest

from headrace.broker.connection.states import NEXT, ConnectionEvent, ConnectionState

ENDED = (ConnectionState.CLOSING, ConnectionState.CLOSED)


def reachable_from(
    state: ConnectionState, *, without: tuple[ConnectionEvent, ...] = ()
) -> set[ConnectionState]:
    seen, left = {state}, [state]
    while left:
        for event, following in NEXT[left.pop()].items():
            if event not in without and following not in seen:
                seen.add(following)
                left.append(following)
    return seen


def ways_into(wanted: ConnectionState) -> set[tuple[ConnectionState, ConnectionEvent]]:
    return {
        (state, event)
        for state, row in NEXT.items()
        for event, following in row.items()
        if following is wanted
    }


def test_every_state_has_its_row_and_can_be_reached_from_a_login():
    assert NEXT.keys() == set(ConnectionState)
    assert reachable_from(ConnectionState.LOGIN) == set(ConnectionState)


@pytest.mark.parametrize("state", ConnectionState)
def test_a_connection_may_be_lost_or_fail_at_any_time_and_a_request_may_arrive(state):
    assert NEXT[state][ConnectionEvent.LOST] is ConnectionState.CLOSED
    assert NEXT[state][ConnectionEvent.FAILED] in ENDED
    assert ConnectionEvent.QUEUED in NEXT[state]


def test_a_connection_that_is_closed_stays_closed():
    assert reachable_from(ConnectionState.CLOSED) == {ConnectionState.CLOSED}
    assert reachable_from(ConnectionState.CLOSING) == {ConnectionState.CLOSING, ConnectionState.CLOSED}


def test_a_request_is_served_by_the_fast_path_only_behind_everything_that_the_task_had_to_do():
    assert ways_into(ConnectionState.IDLE) == {
        (ConnectionState.TASK, ConnectionEvent.DRAINED),
        (ConnectionState.HELD, ConnectionEvent.RELEASED),
    }
    assert ways_into(ConnectionState.HELD) == {
        (ConnectionState.IDLE, ConnectionEvent.TAKEN),
        (ConnectionState.HELD, ConnectionEvent.QUEUED),
    }


def test_nothing_is_served_to_a_client_that_must_log_in_until_it_has():
    before_login = reachable_from(ConnectionState.LOGIN, without=(ConnectionEvent.IDENTIFIED,))
    assert before_login == {ConnectionState.LOGIN, *ENDED}


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (ConnectionState.TASK, ConnectionEvent.TAKEN),
        (ConnectionState.IDLE, ConnectionEvent.DRAINED),
        (ConnectionState.IDLE, ConnectionEvent.RELEASED),
        (ConnectionState.HELD, ConnectionEvent.TAKEN),
        (ConnectionState.LOGIN, ConnectionEvent.DRAINED),
        (ConnectionState.CLOSED, ConnectionEvent.IDENTIFIED),
    ],
)
def test_what_cannot_happen_is_our_mistake_and_is_named(state, event):
    what = f"{event.name} cannot happen to a connection in state {state.name}"
    with pytest.raises(LookupError, match=what):
        NEXT[state][event]
