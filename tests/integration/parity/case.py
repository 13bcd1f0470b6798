"""The list of cases; importing a module of cases adds its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["CASES", "Case", "case"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to do to a log, and to compare.

    `differs` is the reason where ours answers otherwise, on purpose. `secured`
    cases run on logs that ask who is there.
    """

    area: str
    title: str
    run: Callable[[Any], Any]
    differs: str | None = None
    secured: bool = False

    @property
    def id(self) -> str:
        return f"{self.area}: {self.title}"


CASES: dict[str, Case] = {}


def case(
    area: str, title: str, *, differs: str | None = None, secured: bool = False
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Makes a case of a function that takes a `Stage` and returns something that JSON can hold."""

    def add(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        one = Case(area=area, title=title, run=run, differs=differs, secured=secured)
        assert one.id not in CASES, f"two cases are called {one.id}"
        CASES[one.id] = one
        return run

    return add
