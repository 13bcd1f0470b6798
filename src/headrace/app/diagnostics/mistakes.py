"""What is wrong with an application, in one sentence that begins with the place in the user's file."""

import contextlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from headrace.app.diagnostics.places import Place, place_in
from headrace.errors import ConfigError, HeadraceError
from headrace.nearest import nearest, no_such

__all__ = ["mistake", "placed"]

_CONDITION = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
_AFTER_SENTENCE = re.compile(r"\s*SQLSTATE: \w+|;?\s*\n[~'!+*]|\n\n", re.DOTALL)
_SQL = re.compile(r"== SQL(?: \([^)]*\))? ==\n(.*?)\n-*\^\^\^", re.DOTALL)
_NO_SPARK_YET = ("SESSION_OR_CONTEXT_NOT_EXISTS", "SESSION_NOT_EXISTS", "NO_ACTIVE_SESSION")
_BEFORE_SPARK = (
    "Spark starts once the file is read, so there are no PySpark columns yet; use them in a view function, "
    'write an event time as text, such as event_time="at", and name a type by its class'
)
_NO_ATTRIBUTE = re.compile(r"(type object|module)? ?'[\w.]+'( object)? has no attribute '\w+'")
_NO_ARGUMENT = re.compile(r"(\w+(?:\.\w+)*)\(\) got an unexpected keyword argument '(\w+)'")
_UNNAMED_RESULT = re.compile(r"\w+\.agg\(\) takes 1 positional argument")
_NO_IMPORT = re.compile(r"cannot import name '(\w+)' from '(headrace[\w.]*)'")
_FEW = 20
_SEVERAL_ROWS = (
    "explode and similar functions make several rows of one, which the steps of a stream cannot do; "
    "use .df, which is a PySpark DataFrame, or write a record for each row"
)


@contextlib.contextmanager
def placed(place: Place | None, view: str, columns: Sequence[str] = ()) -> Iterator[None]:
    """Within, whatever is wrong is a ConfigError that names the place and the view.

    `columns` are those that an expression may name, for who misspelt one.
    """
    try:
        yield
    except Exception as error:  # of whatever kind: the user's file is to be corrected
        raise mistake(error, view=view, place=place, columns=columns) from error


def mistake(
    error: Exception, *, view: str | None = None, place: Place | None = None, columns: Sequence[str] = ()
) -> ConfigError:
    """The error as one of the user's file; `place` counts where the error itself has none."""
    if isinstance(error, _PlacedError):
        return error
    found = place_in(error) or place
    about = f"view {view!r}"
    what = _sentence(error, columns)
    parts = [] if found is None else [str(found)]
    parts += [] if view is None or what.startswith(about) else [about]
    return _PlacedError(": ".join([*parts, what]))


class _PlacedError(ConfigError):
    """One that says where; it is not said twice."""


def _sentence(error: Exception, columns: Sequence[str]) -> str:
    if isinstance(error, HeadraceError):
        return str(error)
    kind = type(error)
    if kind.__module__.startswith("pyspark.errors"):  # looked up by name, so as not to import PySpark
        return _refusal(error, columns)
    ours = _of_our_names(error)
    if ours is not None:
        return ours
    said = error.msg if isinstance(error, SyntaxError) else str(error).strip().partition("\n")[0]
    return f"{kind.__name__}: {said}" if said else kind.__name__


def _of_our_names(error: Exception) -> str | None:
    """What Python says of our names, with the nearest right one; None if it is about something else."""
    text = str(error)
    if isinstance(error, AttributeError):
        return _attribute(error.name or "", error.obj, text)
    if isinstance(error, TypeError) and _UNNAMED_RESULT.match(text):
        return 'the results of .agg need names, as in .agg(total=agg.sum("amount"))'
    if isinstance(error, TypeError) and (found := _NO_ARGUMENT.fullmatch(text)):
        function = _ours(found[1])
        return (
            None if function is None else f"{found[1]}: {no_such('argument', found[2], _arguments(function))}"
        )
    if isinstance(error, ImportError) and (found := _NO_IMPORT.match(text)):
        known = getattr(sys.modules[found[2]], "__all__", ())
        return f"{found[2]}: {no_such('name', found[1], known)}"
    if isinstance(error, AssertionError) and not text and _is_raised_in_pyspark(error):
        return _BEFORE_SPARK
    return None


def _attribute(name: str, owner: Any, text: str) -> str | None:
    named = owner if isinstance(owner, type | ModuleType) else type(owner)
    where = named.__name__ if isinstance(named, ModuleType) else named.__module__
    if not where.startswith("headrace"):
        return None
    if not _NO_ATTRIBUTE.fullmatch(text):
        return text  # it is in our own words
    known = [each for each in dir(owner) if not each.startswith("_")]
    if len(known) <= _FEW:
        return f"{named.__name__}: {no_such('attribute', name, known)}"
    meant = nearest(name, known)
    return f"{named.__name__} has no {name!r}" + ("" if meant is None else f"; did you mean {meant!r}?")


def _ours(qualified: str) -> Callable[..., Any] | None:
    """One of our functions, by the name that Python gives it in a message."""
    first, *rest = qualified.split(".")
    for name, module in list(sys.modules.items()):
        found: Any = vars(module).get(first) if name.startswith("headrace") else None
        for each in rest:
            found = getattr(found, each, None)
        if callable(found):
            return found  # type: ignore[no-any-return]
    return None


def _arguments(function: Callable[..., Any]) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = inspect.signature(function).parameters.values()
    return [each.name for each in found if each.kind in kinds and each.name not in ("self", "cls")]


def _is_raised_in_pyspark(error: Exception) -> bool:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and "pyspark" in last.tb_frame.f_globals.get("__name__", "")


def _refusal(error: Any, columns: Sequence[str]) -> str:
    """Why Spark refused an expression; `columns` are those that it may name."""
    condition, parameters = error.getCondition() or "", error.getMessageParameters() or {}
    if condition.startswith("UNRESOLVED_COLUMN"):
        name = str(parameters.get("objectName", "")).replace("`", "")
        known = columns or str(parameters.get("proposal", "")).replace("`", "").split(", ")
        shown = [each for each in known if each.startswith("_") <= name.startswith("_")]
        return no_such("column", name, shown or known)
    if condition.startswith("UNSUPPORTED_GENERATOR"):
        return _SEVERAL_ROWS
    if condition in _NO_SPARK_YET:
        return _BEFORE_SPARK
    text = str(error).strip()
    sentence = _AFTER_SENTENCE.split(_CONDITION.sub("", text), maxsplit=1)[0]
    sql = _SQL.search(text)
    return " ".join(sentence.split()).rstrip(".") + (f" (in {sql[1]!r})" if sql else "")
