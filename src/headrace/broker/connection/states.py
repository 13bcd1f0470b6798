"""The states of a connection, and what leads from one to another. Everything about that is here.

```text
              IDENTIFIED              DRAINED             TAKEN
     LOGIN ───────────────▶ TASK ───────────────▶ IDLE ─────────▶ HELD
       ▲                     │ ▲                    │ ▲             │
       └─────────────────────┘ └────── QUEUED ──────┘ └─ RELEASED ──┘
             LOGIN_BEGAN
```

From every state FAILED leads to CLOSING, and LOST to CLOSED. A transition that is not in the
table is a mistake of ours, never of the client's.
"""

from enum import IntEnum, auto

__all__ = ["NEXT", "ConnectionEvent", "ConnectionState"]


class ConnectionState(IntEnum):
    """Who serves the connection's next request."""

    LOGIN = auto()
    """The task, and only what is part of a login: the client is not known yet."""
    TASK = auto()
    """The task: something is queued for it or under way, or every request is (permissions are on)."""
    IDLE = auto()
    """The fast path, if it can: nothing is under way but produce requests that wait for their sync."""
    HELD = auto()
    """The task, behind a request that the fast path holds until something happens."""
    CLOSING = auto()
    """Nobody: something went wrong, and the connection is being closed."""
    CLOSED = auto()
    """Nobody: the connection is gone."""


class ConnectionEvent(IntEnum):
    """What may happen to a connection."""

    IDENTIFIED = auto()
    """The client has logged in."""
    LOGIN_BEGAN = auto()
    """A client that was known by its certificate logs in as a user."""
    DRAINED = auto()
    """The task has nothing left to do."""
    QUEUED = auto()
    """Something is there for the task to do."""
    TAKEN = auto()
    """The fast path took a request that it cannot answer yet."""
    RELEASED = auto()
    """The request that was held is over, or what is left of it is the task's."""
    FAILED = auto()
    """A request broke the protocol, or serving it failed."""
    LOST = auto()
    """The transport is closed."""


class _Row(dict[ConnectionEvent, ConnectionState]):
    """What may happen in one state; a LookupError names what may not."""

    def __init__(self, state: ConnectionState, row: dict[ConnectionEvent, ConnectionState]) -> None:
        super().__init__(row)
        self._state = state

    def __missing__(self, event: ConnectionEvent) -> ConnectionState:
        raise LookupError(f"{event.name} cannot happen to a connection in state {self._state.name}")


_ENDINGS = {ConnectionEvent.FAILED: ConnectionState.CLOSING, ConnectionEvent.LOST: ConnectionState.CLOSED}
_TABLE: dict[ConnectionState, dict[ConnectionEvent, ConnectionState]] = {
    ConnectionState.LOGIN: {
        ConnectionEvent.IDENTIFIED: ConnectionState.TASK,
        ConnectionEvent.QUEUED: ConnectionState.LOGIN,
        **_ENDINGS,
    },
    ConnectionState.TASK: {
        ConnectionEvent.LOGIN_BEGAN: ConnectionState.LOGIN,
        ConnectionEvent.DRAINED: ConnectionState.IDLE,
        ConnectionEvent.QUEUED: ConnectionState.TASK,
        **_ENDINGS,
    },
    ConnectionState.IDLE: {
        ConnectionEvent.QUEUED: ConnectionState.TASK,
        ConnectionEvent.TAKEN: ConnectionState.HELD,
        **_ENDINGS,
    },
    ConnectionState.HELD: {
        ConnectionEvent.QUEUED: ConnectionState.HELD,
        ConnectionEvent.RELEASED: ConnectionState.IDLE,
        **_ENDINGS,
    },
    ConnectionState.CLOSING: {ConnectionEvent.QUEUED: ConnectionState.CLOSING, **_ENDINGS},
    ConnectionState.CLOSED: {
        ConnectionEvent.QUEUED: ConnectionState.CLOSED,
        ConnectionEvent.FAILED: ConnectionState.CLOSED,
        ConnectionEvent.LOST: ConnectionState.CLOSED,
    },
}

NEXT = {state: _Row(state, row) for state, row in _TABLE.items()}
"""`NEXT[state][event]` is the state that an event leads to."""
