"""The judge of histories is judged: what it accepts and what it refuses."""

import random

import pytest
from tests.crash.sourcing.account_history import model, operation_of
from tests.crash.sourcing.linearisable import NEVER, Operation, is_linearisable
from tests.crash.sourcing.porcupine import build_judge, judged


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


def planted(chance, length):
    """A history of one account with overlapping and unanswered operations; sometimes one answer is wrong."""
    lines, state, now = [], (0, 0), 0
    for number in range(length):
        amount = chance.choice((None, chance.randrange(-5, 9)))
        expected = None if amount is None else chance.choice((None, None, state[1], 1))
        line = {"client": number, "entity": "e", "id": str(number), "amount": amount, "expected": expected}
        happened = now = now + chance.randrange(1, 10)
        line |= {"called": happened - chance.randrange(15), "returned": happened + chance.randrange(15)}
        if amount is None:
            line |= {"balance": state[0], "version": state[1]}
        else:
            outcome = (
                "conflict"
                if expected not in (None, state[1])
                else "rejected"
                if state[0] + amount < 0
                else "accepted"
            )
            if outcome == "accepted":
                state = (state[0] + amount, state[1] + 1)
            line |= {"outcome": outcome, "version": state[1]}
            if chance.random() < 0.1:
                line["returned"] = None
        lines.append(line)
    if chance.random() < 0.5:
        wrong = chance.choice(lines)
        wrong["version"] += chance.choice((-1, 1))
    return lines


@pytest.mark.slow
def test_both_judges_say_the_same_of_planted_histories(tmp_path):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    histories = [planted(chance, chance.randrange(1, 30)) for _ in range(300)]
    lines = [{**line, "entity": str(number)} for number, each in enumerate(histories) for line in each]
    verdict = judged(build_judge(tmp_path), lines)
    ours = [
        str(number)
        for number, each in enumerate(histories)
        if not is_linearisable([operation_of(line) for line in each], model, (0, 0))
    ]
    assert sorted(ours) == verdict["wrong"]
    assert verdict["undecided"] == []
    assert 20 < len(ours) < 280
