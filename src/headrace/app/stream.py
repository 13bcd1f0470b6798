"""Streams as an application declares them: where records come from, and what is done with them.

Nothing here runs: a stream is a description, and every method returns a new one. The
columns of PySpark go between the stages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NoReturn

from headrace.app.diagnostics.places import Place, calling_place
from headrace.app.operations import Operations, require_aggregates, require_window
from headrace.app.status.alerts import Thresholds
from headrace.errors import ConfigError
from headrace.nearest import nearest
from headrace.streams.operators import Aggregate, Window, WindowOperator

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headrace.app.relation import Relation
    from headrace.streams import StreamSpec
    from headrace.streams.engine import Step

__all__ = ["Aggregation", "Stream", "Windowed"]

Emit = Literal["close", "update"]

# What those who know PySpark's DataFrames look for first, and what it is here.
_INSTEAD = {
    "groupBy": ".window(…, by=…).agg(…) or .group_by(…).agg(…)",
    "groupby": ".window(…, by=…).agg(…) or .group_by(…).agg(…)",
    "agg": ".window(…, by=…).agg(…)",
    "filter": ".where(…)",
    "withColumn": ".with_columns(name=…)",
    "withColumns": ".with_columns(name=…)",
    "selectExpr": ".select(…), which takes SQL too",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream(Operations):
    """A topic read as rows, and the steps after it.

    `places` are where the user's file takes each step, for messages.
    """

    spec: "StreamSpec"
    correct_for_us: int
    partitions: int = 4
    steps: "tuple[Step, ...]" = ()
    thresholds: Thresholds = field(default_factory=Thresholds)
    places: tuple[Place | None, ...] = field(default=(), compare=False, repr=False)

    def where(self, condition: "Column | str") -> "Stream":
        """Only the rows for which the condition (a PySpark column, or SQL) is true."""
        from headrace.streams.engine import Where

        return self._then(Where(condition))

    def with_columns(self, **columns: "Column | str") -> "Stream":
        """More columns, computed from those that are there; SQL as text, or PySpark columns."""
        from headrace.streams.engine import WithColumns

        return self._then(WithColumns(columns))

    def select(self, *columns: "Column | str") -> "Stream":
        """These columns and no others."""
        from headrace.streams.engine import Select

        return self._then(Select(columns))

    def window(self, window: Window, *, by: str | Sequence[str] = (), emit: Emit = "close") -> "Windowed":
        """Groups rows by window and key columns.

        A result is published when its window closes, or with `emit="update"` from the
        first row on, and again whenever it changes.
        """
        keys = (by,) if isinstance(by, str) else tuple(by)
        if emit not in ("close", "update"):
            raise ConfigError(f'emit={emit!r} is neither "close" nor "update"')
        require_window(window)
        return Windowed(stream=self, window=window, keys=keys, emit=emit)

    if not TYPE_CHECKING:  # a checker shall go on to refuse what is not there

        def __getattr__(self, name: str) -> NoReturn:
            own = [each for each in dir(type(self)) if not each.startswith("_")]
            meant = nearest(name, own)
            instead = _INSTEAD.get(name) or (f".{meant}" if meant is not None else "")
            advice = f"{instead}, or .df" if instead else ".df"
            raise AttributeError(
                f"a stream has no {name!r}; use {advice}, which is a PySpark DataFrame",
                name=name,
                obj=self,
            )

    @property
    def df(self) -> "DataFrame":
        """The stream as a plain streaming DataFrame, inside a view function.

        It has the stream's columns and `_corrupt`, the reason why a value could not be
        read: such rows are the user's to deal with here.
        """
        from headrace.app.plain_frame import plain_frame

        return plain_frame(self.spec, self.steps)

    def _then(self, step: "Step") -> "Stream":
        return replace(self, steps=(*self.steps, step), places=(*self.places, calling_place()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed:
    """Rows grouped by window and key; `agg` says what to compute of each group."""

    stream: "Stream | Relation"
    window: Window
    keys: tuple[str, ...]
    emit: Emit

    def agg(self, **aggregates: Aggregate) -> "Aggregation":
        """One column of the result per aggregate, under its name."""
        require_aggregates(aggregates)
        return Aggregation(windowed=self, aggregates=aggregates, place=calling_place())


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """A windowed result: what a view function returns; `place` is where the user's file asks for it."""

    windowed: Windowed
    aggregates: Mapping[str, Aggregate]
    place: Place | None = field(default=None, compare=False, repr=False)

    @property
    def stream(self) -> "Stream | Relation":
        """The rows behind the windows."""
        return self.windowed.stream

    def operator(self, *, keep_closed_us: int) -> WindowOperator:
        """The operator that computes it."""
        return WindowOperator(
            window=self.windowed.window,
            keys=self.windowed.keys,
            aggregates=tuple(self.aggregates.items()),
            emit=self.windowed.emit,
            correct_for_us=0 if not isinstance(self.stream, Stream) else self.stream.correct_for_us,
            keep_closed_us=keep_closed_us,
        )
