"""Where in a user's own files something was written, so that a message about it can say so.

A frame is the user's if its file belongs neither to Headrace, nor to Python, nor to what
is installed. The demonstration counts as a user's: it is an ordinary application.
"""

import sys
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["Place", "calling_place", "is_users", "place_in", "place_of"]

_HEADRACE = Path(__file__).parents[2]
# How files of others are known wherever they lie: on a worker these folders may be elsewhere.
_INSTALLED = ("/site-packages/", "/dist-packages/", "/pyspark.zip/", "-src.zip/py4j/")


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file; as text with a path as short as the current folder allows."""

    file: str
    line: int

    def __str__(self) -> str:
        path = Path(self.file)
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        return f"{shown}, line {self.line}"


@cache
def is_users(file: str) -> bool:
    """Whether a file of this name, as Python's frames have it, is the user's own."""
    if file.startswith("<") or any(each in file for each in _INSTALLED):
        return False
    path = Path(file)
    if path.is_relative_to(_HEADRACE):
        return path.is_relative_to(_HEADRACE / "demo")
    return not any(path.is_relative_to(each) for each in _python_folders())


@cache
def _python_folders() -> frozenset[str]:
    paths = sysconfig.get_paths()
    return frozenset(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def calling_place() -> Place | None:
    """The user's line that is being executed; None if there is none below this call."""
    frame = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return Place(frame.f_code.co_filename, frame.f_lineno)
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def place_in(error: BaseException) -> Place | None:
    """The user's line that an exception came through last; of a SyntaxError, the line that is wrong."""
    if isinstance(error, SyntaxError) and error.filename is not None and is_users(error.filename):
        return Place(error.filename, error.lineno or 1)
    return _last(_lines(error.__traceback__))


def _lines(traceback: TracebackType | None) -> Iterable[Place]:
    while traceback is not None:
        yield Place(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next


def _last(places: Iterable[Place]) -> Place | None:
    users = [each for each in places if is_users(each.file)]
    return users[-1] if users else None


def place_of(function: Callable[..., Any]) -> Place | None:
    """Where a function is defined; None of one that is not written in Python."""
    code = getattr(function, "__code__", None)
    return None if code is None else Place(code.co_filename, code.co_firstlineno)
