"""What is wrong with an application, in one sentence that begins with the place in the user's file."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from headrace.app.diagnostics.places import Place, place_in
from headrace.errors import ConfigError, HeadraceError
from headrace.nearest import no_such

__all__ = ["mistake", "placed"]

_CONDITION = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
_AFTER_SENTENCE = re.compile(r"\s*SQLSTATE: \w+|;?\s*\n[~'!+*]|\n\n", re.DOTALL)
_SQL = re.compile(r"== SQL(?: \([^)]*\))? ==\n(.*?)\n-*\^\^\^", re.DOTALL)
_NO_SPARK_YET = ("SESSION_OR_CONTEXT_NOT_EXISTS", "SESSION_NOT_EXISTS", "NO_ACTIVE_SESSION")
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
    said = error.msg if isinstance(error, SyntaxError) else str(error).strip().partition("\n")[0]
    return f"{kind.__name__}: {said}" if said else kind.__name__


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
        return "Spark starts once the file is read; do this in a view function, or name a type by its class"
    text = str(error).strip()
    sentence = _AFTER_SENTENCE.split(_CONDITION.sub("", text), maxsplit=1)[0]
    sql = _SQL.search(text)
    return " ".join(sentence.split()).rstrip(".") + (f" (in {sql[1]!r})" if sql else "")
