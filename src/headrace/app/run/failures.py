"""Why a query failed, and whether starting it again may help.

What is raised in this process, by a query's sink, is judged by its type. What is raised in one of
Spark's Python workers, or in the feed's planner, comes from another process by way of the JVM, and
all that Spark passes on is the traceback as text. So there, and only there, the text is read: for
the name of an error of ours, which stands for its class, and for the sentence to show.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from headrace import errors
from headrace.app.diagnostics.places import Place, is_users
from headrace.app.run.resting import QueryRest
from headrace.errors import (
    ConfigError,
    CorruptionError,
    FencedError,
    HeadraceError,
    RequestError,
    RetriableError,
)

__all__ = ["NotedSink", "QueryFailure", "QueryStart", "failure_of"]

_OURS = re.compile(r"headrace\.errors\.(\w+): (.+)")
_THEIRS = re.compile(r"^\s*(?:Caused by: )?((?:\w+\.)*\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)
# The application or its environment must change before these go away.
_FINAL = (ConfigError, RequestError, CorruptionError, FencedError)
_TOO_BUSY = "Python worker failed to connect back"
_OVERLOAD = (
    "a Python process took longer to start than the 10 seconds that Spark gives it: the machine is busy"
)
_KAFKA = re.compile(r'(?:\w+\.)*KafkaError\{[^}]*?str="([^"]*)"\}')


@dataclass(frozen=True, slots=True)
class QueryFailure:
    """The cause of a failed query, and whether starting it again may help.

    An outage is somebody else's, such as a log or a store that does not answer: it passes by itself. So does
    an overload: this machine was too busy to start the process that plans for a query.
    """

    cause: str
    may_retry: bool
    is_fenced: bool = False
    is_outage: bool = False
    is_overload: bool = False


class NotedSink:
    """A query's sink, and what it raised in the last batch: of that Spark passes on the text only."""

    def __init__(self, sink: Callable[[Any, int], None]) -> None:
        self._sink = sink
        self.raised: Exception | None = None

    def __call__(self, batch: Any, batch_id: int) -> None:
        self.raised = None
        try:
            self._sink(batch, batch_id)
        except Exception as error:
            self.raised = error
            raise


@dataclass(frozen=True, slots=True)
class QueryStart:
    """Starts a query from its checkpoint, now and after each failure."""

    start: Callable[[], StreamingQuery]
    sink: NotedSink
    rest: QueryRest = field(default_factory=QueryRest)
    buckets: int = 0
    tasks: int = 0

    def __call__(self) -> StreamingQuery:
        self.sink.raised = None
        return self.start()

    def raised(self) -> Exception | None:
        """What the sink has raised since the last start."""
        return self.sink.raised


def failure_of(error: PySparkException | str | None, raised: Exception | None = None) -> QueryFailure:
    """What failed a query: what its sink raised, if that is ours, or else the innermost error in the message.

    One that a user's own function raised begins with the line that did.
    """
    if isinstance(raised, HeadraceError):
        return _ours(type(raised), str(raised))
    text = _KAFKA.sub(r"\1", str(error)) if error is not None else "it ended without a message"
    ours = _OURS.findall(text)
    if ours:
        name, cause = ours[-1]
        return _ours(getattr(errors, name, HeadraceError), cause)
    if _TOO_BUSY in text:
        return QueryFailure(_OVERLOAD, True, is_outage=True, is_overload=True)
    theirs = _THEIRS.findall(text)
    if theirs:
        kind, cause = theirs[-1]
        return QueryFailure(f"{_place(text)}{kind.rpartition('.')[2]}: {cause}", True)
    return QueryFailure(text.strip().partition("\n")[0], True)


def _ours(kind: type[Exception], cause: str) -> QueryFailure:
    return QueryFailure(
        cause,
        not issubclass(kind, _FINAL),
        is_fenced=issubclass(kind, FencedError),
        is_outage=issubclass(kind, RetriableError),
    )


def _place(text: str) -> str:
    """The user's line that a traceback in the text ends in, if it has one."""
    users = [Place(file, int(line)) for file, line in _FRAME.findall(text) if is_users(file)]
    return f"{users[-1]}: " if users else ""
