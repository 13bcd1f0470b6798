"""Why a query failed, in one sentence, from what Spark says in a hundred lines."""

import re
from dataclasses import dataclass

from pyspark.errors import PySparkException

__all__ = ["QueryFailure", "failure_of"]

_OURS = re.compile(r"headrace\.errors\.(\w+): (.+)")
_THEIRS = re.compile(r"^\s*(?:Caused by: )?((?:\w+\.)*\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
# The application or its surroundings must change before these go away.
_FINAL = {"ConfigError", "RequestError", "CorruptionError", "FencedError"}


@dataclass(frozen=True, slots=True)
class QueryFailure:
    """The cause of a failed query, and whether starting it again may help."""

    cause: str
    may_retry: bool


def failure_of(error: PySparkException | str | None) -> QueryFailure:
    """The innermost error of ours, or of Python's, in a failed query's message."""
    text = str(error) if error is not None else "it ended without a message"
    ours = _OURS.findall(text)
    if ours:
        kind, cause = ours[-1]
        return QueryFailure(cause, kind not in _FINAL)
    theirs = _THEIRS.findall(text)
    if theirs:
        kind, cause = theirs[-1]
        return QueryFailure(f"{kind.rpartition('.')[2]}: {cause}", True)
    return QueryFailure(text.strip().partition("\n")[0], True)
