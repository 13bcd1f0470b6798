"""What can be done with streams, tables and relations alike, and what it makes of them.

Nothing here runs: each method returns a description.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self, TypeAlias, cast

from headrace.app.diagnostics.places import calling_place
from headrace.app.keys import all_columns, always, key_of_first, with_place
from headrace.errors import ConfigError
from headrace.streams.operators import Hopping, Session, Sliding, Tumbling
from headrace.streams.operators import microseconds as duration_us

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

    from headrace.app.relation import Duration, Grouped, How, Relation, Table, Version
    from headrace.app.stream import Stream

    Input: TypeAlias = Stream | Table | Relation

__all__ = ["Operations", "require_aggregates", "require_window"]


def require_window(window: object) -> None:
    """Raises ConfigError for what is no kind of window."""
    if not isinstance(window, Tumbling | Hopping | Sliding | Session):
        raise ConfigError(
            f'{window!r} is not a window; use tumbling("1 minute"), hopping("10 minutes", every="1 minute"), '
            'sliding("1 minute") or session("30 minutes")'
        )


def require_aggregates(given: Mapping[str, object]) -> None:
    """Raises ConfigError if there is none, or one is something else, such as a PySpark column."""
    if not given:
        raise ConfigError("agg() needs at least one aggregate, such as n=agg.count()")
    for name, each in given.items():
        if not callable(getattr(type(each), "cells", None)):  # a PySpark column has whatever it is asked for
            raise ConfigError(
                f"{name}={each!r} is not an aggregate; use agg.count(), agg.sum(…) or another of headrace.agg"
            )


class Operations:
    """What can be done with a `Stream`, a `Table` and a `Relation` alike: all of them have these methods."""

    __slots__ = ()

    if TYPE_CHECKING:

        def where(self, condition: "Column | str") -> Self: ...

    def join(
        self,
        other: "Stream | Table | Relation",
        *,
        on: str | Sequence[str] | Mapping[str, str],
        how: "How" = "inner",
        within: "Duration | None" = None,
        before: "Duration | None" = None,
        after: "Duration | None" = None,
        version: "Version" = "as_of",
        prefix: str = "",
    ) -> "Relation":
        """Rows of both sides that belong together.

        Two streams: rows that happened `within` a span of time of each other (or so long `before`
        and `after` this one's). A stream and a table: the row as it was at the time, or with
        `version="latest"` the newest that has been read. Two tables: rows as they are. `on` names the
        columns that are equal; a mapping, this side's and the other's. `prefix` is put before the
        names of the other side's columns, but for those that both are joined by under one name.
        """
        from headrace.app.relation import join

        return join(
            _input(self),
            other,
            on=on,
            how=how,
            within=within,
            before=before,
            after=after,
            version=version,
            prefix=prefix,
        )

    def group_by(self, *keys: str) -> "Grouped":
        """Groups all rows there are by the values of columns, without windows."""
        from headrace.app.relation import Grouped

        return Grouped(rows=_input(self), keys=keys)

    def distinct(self, *columns: str) -> "Relation":
        """A table of the distinct values of these columns; of all columns, if none are named."""
        from headrace.app.relation import Relation
        from headrace.streams.operators import Distinct

        return Relation(
            name=f"distinct {', '.join(columns)}".strip(),
            inputs=(_input(self),),
            make=lambda schemas: Distinct(columns or tuple(schemas[0].names)),
            is_stream=False,
            is_set=True,
            key=columns,
            certain=always(columns) if columns else all_columns,
            place=calling_place(),
        )

    def top(self, n: int, *, by: str | Sequence[str], per: str | Sequence[str] = ()) -> "Relation":
        """A table of the `n` rows of each group (`per`) that are the greatest by these columns.

        "placed_at asc" begins with the least. Nulls are last.
        """
        from headrace.app.relation import Relation, Table, is_append_only
        from headrace.streams.operators import Top

        rows = _input(self)
        key = rows.key if isinstance(rows, Table | Relation) else ()
        ordering = tuple(map(_ordering, _names(by)))
        keys, append_only = _names(per), is_append_only(rows)
        return Relation(
            name=f"top {n} by {', '.join(name for name, _ in ordering)}",
            inputs=(rows,),
            make=lambda schemas: Top(n, keys, ordering, _those_in(schemas[0], key), append_only),
            is_stream=False,
            key=key,
            certain=key_of_first,
            is_set=isinstance(rows, Relation) and rows.is_set,
            place=calling_place(),
        )

    def dedup(self, *keys: str, within: "Duration") -> "Relation":
        """The rows of a stream without those whose key came within a time before them."""
        from headrace.app.relation import Relation, correct_for_us, is_stream, settled
        from headrace.streams.operators import Dedup

        rows = settled(_input(self))
        if not is_stream(rows):
            raise ConfigError(
                "dedup is for streams: the rows of a table have a key; see distinct() and top()"
            )
        operator = Dedup(keys, duration_us(within), correct_for_us(rows))
        return Relation(
            name=f"dedup by {', '.join(keys)}",
            inputs=(rows,),
            make=lambda _: operator,
            is_stream=True,
            append_only=True,
            one_row_each=_is_one_row_each(rows),
            place=calling_place(),
        )

    def union(self, *others: "Stream | Table | Relation") -> "Relation":
        """The rows of this and of others with the same columns, all of them."""
        from headrace.app.relation import Relation, held_back_us, is_append_only, is_stream
        from headrace.streams.operators import Union

        rows = (_input(self), *others)
        if len({is_stream(each) for each in rows}) > 1:
            raise ConfigError("a union takes streams or tables, not both")
        if not others:
            raise ConfigError("a union needs at least two inputs: one.union(other)")
        operator = Union(len(rows))
        return Relation(
            name="union",
            inputs=rows,
            make=lambda _: operator,
            is_stream=is_stream(rows[0]),
            append_only=all(map(is_append_only, rows)),
            one_row_each=False,
            held_back_us=min(map(held_back_us, rows)),
            place=calling_place(),
        )

    def explode(
        self, column: str, *, name: str | None = None, position: str | None = None, outer: bool = False
    ) -> "Relation":
        """A row for each element of an array column, under `name` in its place.

        `position` names a column with the element's place in the array, from 0. Rows whose array is
        null or empty are left out, unless `outer` is true.
        """
        from headrace.app.relation import Relation, Table, held_back_us, is_append_only, is_stream
        from headrace.streams.operators import Explode

        rows = _input(self)
        key = rows.key if isinstance(rows, Table | Relation) else ()
        operator = Explode(column, name or column, position, outer)
        return Relation(
            name=f"explode {column}",
            inputs=(rows,),
            make=lambda _: operator,
            is_stream=is_stream(rows),
            append_only=is_append_only(rows),
            one_row_each=False,
            held_back_us=held_back_us(rows),
            key=(*key, position) if key and position is not None else (),
            certain=with_place(column, position),
            place=calling_place(),
        )

    def split(self, *conditions: "Column | str") -> tuple[Self, ...]:
        """The rows for which each condition is true, and no earlier one; last, all other rows.

        So every row is in exactly one. A condition that is null counts as not true.
        """
        if not conditions:
            raise ConfigError('split needs a condition: paid, unpaid = orders.split("paid")')
        parts, rest = [], self
        for condition in conditions:
            parts.append(rest.where(condition))
            rest = rest.where(_is_not(condition))
        return (*parts, rest)


def _input(rows: Operations) -> "Input":
    return cast("Input", rows)


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _those_in(schema: "pa.Schema", key: tuple[str, ...]) -> tuple[str, ...]:
    """A key, if steps have left all its columns."""
    return key if set(key) <= set(schema.names) else ()


def _ordering(text: str) -> tuple[str, bool]:
    """A column, and whether the greatest come first."""
    name, _, direction = text.strip().partition(" ")
    if direction.strip().lower() not in ("", "asc", "desc"):
        raise ConfigError(f'by={text!r}: a column, with "asc" or "desc" behind it or nothing')
    return name, direction.strip().lower() != "asc"


def _is_not(condition: "Column | str") -> "Column | str":
    if isinstance(condition, str):
        return f"NOT coalesce(({condition}), false)"
    from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know

    return ~F.coalesce(condition, F.lit(False))


def _is_one_row_each(rows: "Input") -> bool:
    from headrace.app.relation import Relation

    return not isinstance(rows, Relation) or rows.one_row_each
