"""The judge of histories is judged: what it accepts and what it refuses."""

import pytest
from tests.crash.sourcing.linearisable import NEVER, Operation, is_linearisable


def register(state, operation):
    kind, value = operation.what
    if kind == "write":
        return [value]
    return [state] if operation.result == state else []


def write(value, called, returned):
    return Operation(called, returned, ("write", value))


def read(result, called, returned):
    return Operation(called, returned, ("read", None), result)


@pytest.mark.parametrize(
    ("history", "is_right"),
    [
        ([write(1, 0, 1), read(1, 2, 3)], True),
        ([write(1, 0, 1), read(0, 2, 3)], False),  # an old value after the write has returned
        ([write(1, 0, 5), read(0, 1, 2), read(1, 3, 4)], True),
        ([write(1, 0, 5), read(1, 1, 2), read(0, 3, 4)], False),  # back to the old value
        ([write(1, 0, NEVER), read(0, 1, 2), read(1, 9, 10)], True),
        ([write(1, 0, NEVER), read(1, 1, 2), read(0, 9, 10)], False),
        ([write(1, 0, NEVER)], True),
        ([write(1, 0, 9), write(2, 0, 9), read(1, 1, 2), read(2, 3, 4), read(1, 5, 6)], False),
        ([write(1, 0, 9), write(2, 0, 9), read(2, 1, 2), read(1, 3, 4), read(1, 5, 6)], True),
    ],
)
def test_an_order_is_found_where_there_is_one(history, is_right):
    assert is_linearisable(history, register, 0) is is_right
