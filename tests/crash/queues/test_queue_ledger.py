"""The invariants of the campaign can fail."""

from collections import Counter

import pytest
from queue_ledger import Ledger, broken_invariants

PRODUCED = {(0, offset): b"%d" % offset for offset in range(4)}


def ledger() -> Ledger:
    return Ledger(
        produced=PRODUCED,
        confirmed=Counter({(0, 0): 1, (0, 1): 1}),
        tried={(0, 0), (0, 1), (0, 2)},
        dead=Counter({(0, 3): 1}),
        dead_values={(0, 3): b"3"},
    )


def test_a_good_history_breaks_nothing() -> None:
    assert broken_invariants(ledger()) == []


@pytest.mark.parametrize(
    "name",
    [
        "AcceptedOnce",
        "AcceptedOrDead",
        "OneDeadLetter",
        "NoneLost",
        "NothingInvented",
        "DeadLettersAreTheRecords",
    ],
)
def test_each_invariant_sees_its_fault(name: str) -> None:
    broken = ledger()
    match name:
        case "AcceptedOnce":
            broken.confirmed[0, 0] += 1
        case "AcceptedOrDead":
            broken.dead[0, 1] += 1
        case "OneDeadLetter":
            broken.dead[0, 3] += 1
        case "NoneLost":
            broken.tried.discard((0, 2))
        case "NothingInvented":
            broken.confirmed[9, 9] += 1
        case _:
            broken.dead_values[0, 3] = b"other"
    assert [problem.partition(":")[0] for problem in broken_invariants(broken)] == [name]
