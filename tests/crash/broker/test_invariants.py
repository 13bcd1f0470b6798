"""The invariants notice what they are there to notice."""

from collections.abc import Callable

import pytest
from history import History, broken_invariants


def sound() -> History:
    history = History()
    for offset in range(3):
        value = b"a:%d" % offset
        history.sent[value] = 0
        history.acknowledge((0, offset), value)
        history.see((0, offset), value)
        history.log[0, offset] = value
    return history


def lose(history: History) -> None:
    del history.log[0, 2]


def replace(history: History) -> None:
    history.sent[b"a:9"] = 0
    history.log[0, 2] = b"a:9"


def reorder(history: History) -> None:
    history.acked.clear()
    history.seen.clear()
    history.log[0, 1], history.log[0, 2] = history.log[0, 2], history.log[0, 1]


def vanish(history: History) -> None:
    history.see((0, 7), b"a:7")


def reuse(history: History) -> None:
    history.see((0, 2), b"a:8")


def invent(history: History) -> None:
    history.log[0, 3] = b"a:77"


def leave_a_hole(history: History) -> None:
    history.sent[b"a:5"] = 0
    history.log[0, 5] = b"a:5"


def test_a_sound_history_breaks_no_invariant():
    assert broken_invariants(sound()) == []


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (lose, "AckedRecordsSurvive"),
        (replace, "AckedRecordsSurvive"),
        (reorder, "OrderKeptWithinPartition"),
        (vanish, "SeenRecordsNeverVanish"),
        (reuse, "OffsetsNeverReused"),
        (invent, "NothingFromNowhere"),
        (leave_a_hole, "OffsetsAreContiguous"),
    ],
)
def test_a_spoiled_history_breaks_the_invariant_that_names_it(spoil: Callable[[History], None], name: str):
    history = sound()
    spoil(history)
    assert name in " ".join(broken_invariants(history))
