"""Streams as an application declares them: where records come from, and what is done with them.

Nothing here runs: a stream is a description, and every method returns a new one. The
columns of PySpark go between the stages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from headrace.app.alerts import Thresholds
from headrace.errors import ConfigError
from headrace.streams.operators import Aggregate, Window, WindowOperator

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headrace.streams.engine.projection import Step
    from headrace.streams.spec import StreamSpec

__all__ = ["Aggregation", "Stream", "Windowed"]

Emit = Literal["close", "update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A topic read as rows, and the steps after it."""

    spec: "StreamSpec"
    correct_for_us: int
    partitions: int = 4
    steps: "tuple[Step, ...]" = ()
    thresholds: Thresholds = field(default_factory=Thresholds)

    def where(self, condition: "Column | str") -> "Stream":
        """Only the rows for which the condition (a PySpark column, or SQL) is true."""
        from headrace.streams.engine.projection import Where

        return self._then(Where(condition))

    def with_columns(self, **columns: "Column | str") -> "Stream":
        """More columns, computed from those that are there; SQL as text, or PySpark columns."""
        from headrace.streams.engine.projection import WithColumns

        return self._then(WithColumns(columns))

    def select(self, *columns: "Column | str") -> "Stream":
        """These columns and no others."""
        from headrace.streams.engine.projection import Select

        return self._then(Select(columns))

    def window(self, window: Window, *, by: str | Sequence[str] = (), emit: Emit = "close") -> "Windowed":
        """Groups rows by window and key columns.

        A result is published when its window closes, or with `emit="update"` from the
        first row on, and again whenever it changes.
        """
        keys = (by,) if isinstance(by, str) else tuple(by)
        if emit not in ("close", "update"):
            raise ConfigError(f'emit={emit!r} is neither "close" nor "update"')
        return Windowed(stream=self, window=window, keys=keys, emit=emit)

    @property
    def df(self) -> "DataFrame":
        """The stream as a plain streaming DataFrame, inside a view function.

        It has the stream's columns and `_corrupt`, the reason why a value could not be
        read: such rows are the user's to deal with here.
        """
        from headrace.app.surroundings import plain_frame

        return plain_frame(self)

    def _then(self, step: "Step") -> "Stream":
        return replace(self, steps=(*self.steps, step))


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed:
    """Rows grouped by window and key; `agg` says what to compute of each group."""

    stream: Stream
    window: Window
    keys: tuple[str, ...]
    emit: Emit

    def agg(self, **aggregates: Aggregate) -> "Aggregation":
        """One column of the result per aggregate, under its name."""
        if not aggregates:
            raise ConfigError("agg() needs at least one aggregate, such as n=agg.count()")
        return Aggregation(windowed=self, aggregates=aggregates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """A windowed result: what a view function returns."""

    windowed: Windowed
    aggregates: Mapping[str, Aggregate]

    @property
    def stream(self) -> Stream:
        """The stream behind the windows."""
        return self.windowed.stream

    def operator(self, *, keep_closed_us: int) -> WindowOperator:
        """The operator that computes it."""
        return WindowOperator(
            window=self.windowed.window,
            keys=self.windowed.keys,
            aggregates=tuple(self.aggregates.items()),
            emit=self.windowed.emit,
            correct_for_us=self.stream.correct_for_us,
            keep_closed_us=keep_closed_us,
        )
