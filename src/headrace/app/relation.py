"""Tables, and what is made of several streams and tables: joins, groups and the like.

Nothing here runs: each is a description, and every method returns a new one. A *relation* is rows
that an operator makes of others. It is a stream, whose rows happened at a time and only grow in
number, or a table, whose rows come and go.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from headrace.app.diagnostics.places import Place, calling_place
from headrace.app.keys import Certain, Key, always, certain_joined_key, joined_key, shared_columns
from headrace.app.operations import Operations, require_aggregates, require_window
from headrace.app.status.alerts import Thresholds
from headrace.errors import ConfigError
from headrace.streams.operators import Aggregate, Operator, Sliding, Window
from headrace.streams.operators import microseconds as duration_us

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from headrace.app.stream import Aggregation, Emit, Stream, Windowed
    from headrace.streams import StreamSpec
    from headrace.streams.engine import Step

__all__ = [
    "LOOK_BACK_US",
    "Grouped",
    "LookUp",
    "Relation",
    "Rows",
    "Table",
    "correct_for_us",
    "held_back_us",
    "history_of",
    "is_append_only",
    "is_stream",
    "join",
    "keyed_view",
    "settled",
    "windows_of",
]

How = Literal["inner", "left", "right", "full", "semi", "anti"]
Version = Literal["as_of", "latest"]
Duration = str | timedelta
Make = Callable[[Sequence["pa.Schema"]], Operator]


RowsOfAnyKind = TypeVar("RowsOfAnyKind", bound="Stream | Table | Relation")

_KEEP_CLOSED_US = 3_600_000_000
LOOK_BACK_US = 86_400_000_000  # how far back streams look rows of a table up, where nothing else was said


class Rows(Operations):
    """What tables and relations have in common: steps, which Spark computes, and operators."""

    __slots__ = ()

    steps: "tuple[Step, ...]"
    places: tuple[Place | None, ...]

    def where(self, condition: "Column | str") -> Self:
        """Only the rows for which the condition (a PySpark column, or SQL) is true."""
        from headrace.streams.engine import Where

        return self._then(Where(condition))

    def with_columns(self, **columns: "Column | str") -> Self:
        """More columns, computed from those that are there; SQL as text, or PySpark columns."""
        from headrace.streams.engine import WithColumns

        return self._then(WithColumns(columns))

    def select(self, *columns: "Column | str") -> Self:
        """These columns and no others."""
        from headrace.streams.engine import Select

        return self._then(Select(columns))

    def window(self, window: Window, *, by: str | Sequence[str] = (), emit: "Emit" = "close") -> "Windowed":
        """Groups the rows of a stream by window and key columns, as `Stream.window` does."""
        from headrace.app.stream import Windowed

        keys = (by,) if isinstance(by, str) else tuple(by)
        if emit not in ("close", "update"):
            raise ConfigError(f'emit={emit!r} is neither "close" nor "update"')
        require_window(window)
        if not isinstance(self, Relation):
            raise ConfigError("windows are for streams; a table's rows have no time of their own")
        if isinstance(window, Sliding) and not self.one_row_each:
            raise ConfigError(
                "each row of a sliding window's stream has a window of its own, so a record may give one row "
                "at most; over joins of streams, unions and exploded rows use tumbling, hopping or session "
                "windows"
            )
        return Windowed(stream=settled(self), window=window, keys=keys, emit=emit)

    def _then(self, step: "Step") -> Self:
        return replace(self, steps=(*self.steps, step), places=(*self.places, calling_place()))  # type: ignore[type-var]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table(Rows):
    """A topic read as a table: the newest row of each key."""

    spec: "StreamSpec"
    key: tuple[str, ...]
    correct_for_us: int = 0
    keep_us: int = 0
    partitions: int = 4
    steps: "tuple[Step, ...]" = ()
    thresholds: Thresholds = field(default_factory=Thresholds)
    places: tuple[Place | None, ...] = ()

    def df(
        self,
        spark: "SparkSession | None" = None,
        *,
        bootstrap: str | None = None,
        as_of: str | datetime | None = None,
    ) -> "DataFrame":
        """The table's rows as a DataFrame (not a streaming one), read from its topic on the log.

        `as_of` is a time, at which the rows were valid, or offsets such as "0:1200,1:1187", up to
        which the topic is read. Inside a view function Spark and the log are those of the
        application; elsewhere give a session, and the log's address if it is not the default one.
        """
        from headrace.app.plain_frame import table_frame

        return table_frame(self.spec, self.steps, spark, bootstrap, as_of)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relation(Rows):
    """Rows that an operator makes of others.

    `make` is given the columns of the inputs. `key` are the columns that tell rows apart, empty
    where nothing does; `is_set` says that all columns together do, and `certain` for which of them
    that is certain, from what is certain of the inputs. Rows of a `stream` happened at a
    time; one that is `append_only` never takes a row back, and `settled_us` says for how long it has
    waited for that. Its watermark is `held_back_us` behind those in its rows' stamps, at least.
    `one_row_each` says that a record of the stream gives one row at most, so that its place in the log
    tells rows apart. One `of_versions` reads all versions of a table, and not its rows. Of a table's
    rows those `first_of` a key are the first of each. A stream's join looks rows of its second input
    up by `looks_up`, as of a time or as they are; `versions` are those of a table's rows, where they
    have a time.
    """

    name: str
    inputs: "tuple[Stream | Table | Relation, ...]"
    make: Make
    is_stream: bool
    append_only: bool = False
    of_versions: bool = False
    one_row_each: bool = True
    is_set: bool = False
    key: tuple[str, ...] = ()
    certain: Certain | None = None
    first_of: Key | None = None
    held_back_us: int = 0
    settled_us: int = 0
    looks_up: "LookUp | None" = None
    versions: "Relation | None" = None
    steps: "tuple[Step, ...]" = ()
    place: Place | None = None
    places: tuple[Place | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp:
    """How a stream's rows find those of a table: by these columns of it, as of their time or as it is."""

    on: Key
    version: Version

    def require_key(self, key: Key | None) -> None:
        """Raises ConfigError if these columns do not tell the table's rows apart."""
        if self.version == "as_of":
            fits = key is not None and set(key) == set(self.on)
        else:
            fits = key is not None and set(key) <= set(self.on)
        if not fits:
            known = "nothing is known to tell its rows apart" if key is None else f"it is {', '.join(key)}"
            raise ConfigError(
                f"a stream is joined with a table by the table's key, not by {', '.join(self.on)}: {known}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """Rows grouped by the values of columns."""

    rows: "Stream | Table | Relation"
    keys: tuple[str, ...]

    def agg(self, **aggregates: Aggregate) -> Relation:
        """A table with a row for each group: the columns it is grouped by, and one per aggregate."""
        from headrace.streams.operators.groups import Group

        require_aggregates(aggregates)
        keys, named, rows = self.keys, tuple(aggregates.items()), self.rows
        append_only = is_append_only(rows)
        key = rows.key if isinstance(rows, Table | Relation) and not is_stream(rows) else ()

        def make(schemas: Sequence["pa.Schema"]) -> Group:
            known = key if set(key) <= set(schemas[0].names) else ()
            return Group(keys, named, append_only, None if is_stream(rows) else known)

        return Relation(
            name=f"group by {', '.join(keys)}" if keys else "group",
            inputs=(rows,),
            make=make,
            is_stream=False,
            key=keys,
            certain=always(keys),
            place=calling_place(),
        )


def history_of(table: Table) -> Relation:
    """The versions of a table's rows, each with the spans of time and offsets in which it counted."""
    from headrace.streams.operators.tables import TableHistory

    operator = TableHistory(table.key, table.keep_us, table.spec.lateness_us)
    key = (*table.key, "_in_partition", "_from_offset")
    return Relation(
        name=f"history of {table.spec.topic}",
        inputs=(table,),
        make=lambda _: operator,
        is_stream=False,
        of_versions=True,
        key=key,
        certain=always(key),
    )


def windows_of(result: "Aggregation") -> Relation:
    """The results of windows as a table: a row for each key and window, corrected as they are."""
    from headrace.streams.operators import WindowNode

    rows = result.stream
    if isinstance(result.windowed.window, Sliding):
        raise ConfigError(
            "results of sliding windows belong to the rows of a stream and are no table of their own; use "
            "tumbling, hopping or session windows"
        )
    operator = WindowNode(result.operator(keep_closed_us=_KEEP_CLOSED_US))
    keys = ", ".join(result.windowed.keys)
    return Relation(
        name=f"windows by {keys}" if keys else "windows",
        inputs=(rows,),
        make=lambda _: operator,
        is_stream=False,
        key=operator.key,
        certain=always(operator.key),
        place=result.place,
    )


def keyed_view(rows: "Stream | Table | Relation", key: Key) -> "Table | Relation":
    """What a view with this key shows of these rows, as a table: the last of a stream's, or the first."""
    from headrace.streams.operators import FirstRow, LastRow

    if not is_stream(rows):
        assert isinstance(rows, Table | Relation)
        if not key or (rows.key and set(rows.key) <= set(key) and not rows.steps):
            return rows
        return Relation(
            name=f"first of {', '.join(key)}",
            inputs=(rows,),
            make=lambda _: FirstRow(key),
            is_stream=False,
            key=key,
            certain=always(key),
            first_of=key,
            place=calling_place(),
        )
    assert not isinstance(rows, Table)
    operator = LastRow(key, is_append_only(rows), as_table=True)
    return Relation(
        name=f"last of {', '.join(key)}",
        inputs=(rows,),
        make=lambda _: operator,
        is_stream=False,
        key=key,
        certain=always(key),
        versions=_versions_of(rows, key),
        place=calling_place(),
    )


def _versions_of(rows: "Stream | Relation", key: Key) -> Relation:
    """The versions of the last rows of each key: a stream's rows, of which each is one from its time on."""
    from headrace.streams.operators import StreamVersions

    return Relation(
        name=f"versions by {', '.join(key)}",
        inputs=(settled(rows),),
        make=lambda _: StreamVersions(),
        is_stream=True,
        append_only=True,
        key=key,
        certain=always(key),
        place=calling_place(),
    )


def settled(rows: RowsOfAnyKind) -> RowsOfAnyKind:
    """A stream whose rows are never taken back: of a join that corrects, those that are final."""
    from headrace.streams.operators import Settled

    if not isinstance(rows, Relation) or not rows.is_stream or rows.append_only:
        return rows
    operator = Settled(rows.held_back_us)
    return Relation(  # type: ignore[return-value]
        name=f"final rows of {rows.name}",
        inputs=(rows,),
        make=lambda _: operator,
        is_stream=True,
        append_only=True,
        one_row_each=rows.one_row_each,
        settled_us=rows.held_back_us,
        place=rows.place,
    )


def join(
    left: "Stream | Table | Relation",
    right: "Stream | Table | Relation",
    *,
    on: str | Sequence[str] | Mapping[str, str],
    how: How = "inner",
    within: Duration | None = None,
    before: Duration | None = None,
    after: Duration | None = None,
    version: Version = "as_of",
    prefix: str = "",
) -> Relation:
    """Rows of both sides whose columns `on` are equal; a mapping names the left's and the right's.

    Two streams are joined within a span of time; a stream with a table by the row that was valid
    when the stream's happened; two tables as they are, and kept so.
    """
    left_on, right_on = _columns(on)
    spans = (within, before, after)
    if version not in ("as_of", "latest"):
        raise ConfigError(f'version={version!r} is neither "as_of" nor "latest"')
    if version == "latest" and not (is_stream(left) and not is_stream(right)):
        raise ConfigError('version="latest" is for joins of a stream with a table')
    if is_stream(left) and is_stream(right):
        return _prefixed(
            _join_streams(left, right, left_on, right_on, how, *spans), left_on, right_on, prefix
        )
    if any(each is not None for each in spans):
        raise ConfigError("within, before and after are for joins of two streams")
    if is_stream(right):
        raise ConfigError("join a stream with a table, and not the other way round: stream.join(table, …)")
    assert isinstance(right, Table | Relation)
    if is_stream(left):
        joined = _join_as_of(left, right, left_on, right_on, how, version)
        return _prefixed(joined, left_on, right_on, prefix)
    return _prefixed(_join_tables(left, right, left_on, right_on, how, prefix), left_on, right_on, prefix)


def _join_streams(
    left: "Stream | Table | Relation",
    right: "Stream | Table | Relation",
    left_on: tuple[str, ...],
    right_on: tuple[str, ...],
    how: How,
    within: Duration | None,
    before: Duration | None,
    after: Duration | None,
) -> Relation:
    from headrace.streams.operators.joins import StreamJoin

    if within is not None and (before is not None or after is not None):
        raise ConfigError("give within, or before and after, and not both")
    if within is None and before is None and after is None:
        raise ConfigError(
            'a join of two streams needs a span of time: within="10 minutes", or before=… and after=…'
        )
    if how == "semi" or how == "anti":
        raise ConfigError(f"how={how!r} is for joins of two tables")
    left, right = settled(left), settled(right)
    late_us = max(correct_for_us(left), correct_for_us(right))
    operator = StreamJoin(
        left_on=left_on,
        right_on=right_on,
        before_us=duration_us(within or before or "0 seconds"),
        after_us=duration_us(within or after or "0 seconds"),
        how=how,
        late="correct" if late_us else "drop",
        correct_for_us=late_us,
    )
    return Relation(
        name=f"{how} join on {', '.join(left_on)}",
        inputs=(left, right),
        make=lambda _: operator,
        is_stream=True,
        append_only=not late_us or how == "inner",
        one_row_each=False,
        held_back_us=min(held_back_us(left), held_back_us(right)) + late_us,
        place=calling_place(),
    )


def _join_as_of(
    left: "Stream | Table | Relation",
    right: Table | Relation,
    left_on: tuple[str, ...],
    right_on: tuple[str, ...],
    how: How,
    version: Version,
) -> Relation:
    from headrace.streams.operators.joins import AsOfJoin

    if how not in ("inner", "left"):
        raise ConfigError(f'how={how!r}: a stream is joined with a table by "inner" or "left"')
    left, look_up = settled(left), LookUp(on=right_on, version=version)
    if version == "latest" and (not isinstance(right, Table) or right.steps):
        return _join_latest(left, right, left_on, look_up, how)
    versions = _versions(right)
    if not versions.steps:
        look_up.require_key(versions.key)
    late_us = correct_for_us(versions) if version == "as_of" else 0
    operator = AsOfJoin(
        left_on=left_on,
        right_on=right_on,
        how=how,
        mode=version,
        late="correct" if late_us else "drop",
        correct_for_us=late_us,
        keep_us=right.keep_us if isinstance(right, Table) else LOOK_BACK_US,
    )
    return Relation(
        name=f"{how} join with {_named(right)} {'as of its time' if version == 'as_of' else 'as it is'}",
        inputs=(left, versions),
        make=lambda _: operator,
        is_stream=True,
        append_only=not late_us,
        one_row_each=not isinstance(left, Relation) or left.one_row_each,
        held_back_us=held_back_us(left) + late_us,
        looks_up=look_up,
        place=calling_place(),
    )


def _versions(table: "Table | Relation") -> "Table | Relation":
    """What has the versions of a table's rows, behind its steps."""
    if isinstance(table, Table):
        return table
    if table.versions is None:
        raise ConfigError(
            f"the rows of {table.name!r} have no time since which they are valid, so a stream cannot be "
            'joined with them as of its own; join it with them as they are (version="latest"), or with the '
            "tables that they are made of, one after the other"
        )
    return replace(table.versions, steps=table.steps, places=table.places)


def _join_latest(
    left: "Stream | Table | Relation",
    right: "Table | Relation",
    left_on: tuple[str, ...],
    look_up: LookUp,
    how: Literal["inner", "left"],
) -> Relation:
    from headrace.streams.operators.joins import LatestJoin

    operator = LatestJoin(left_on=left_on, right_on=look_up.on, how=how)
    return Relation(
        name=f"{how} join with {_named(right)} as it is",
        inputs=(left, right),
        make=lambda _: operator,
        is_stream=True,
        append_only=True,
        one_row_each=not isinstance(left, Relation) or left.one_row_each,
        held_back_us=held_back_us(left),
        looks_up=look_up,
        place=calling_place(),
    )


def _named(rows: "Table | Relation") -> str:
    return rows.spec.topic if isinstance(rows, Table) else rows.name


def _join_tables(
    left: "Stream | Table | Relation",
    right: Table | Relation,
    left_on: tuple[str, ...],
    right_on: tuple[str, ...],
    how: How,
    prefix: str,
) -> Relation:
    from headrace.streams.operators.joins import TableJoin

    operator = TableJoin(left_on=left_on, right_on=right_on, how=how)
    never_null = isinstance(left, Table), isinstance(right, Table)
    shared = shared_columns(left_on, right_on)

    def named(names: Key | None) -> Key | None:
        """The right's columns as the result has them."""
        return None if names is None else tuple(each if each in shared else prefix + each for each in names)

    on = left_on, named(right_on) or ()
    return Relation(
        name=f"{how} join on {', '.join(left_on)}",
        inputs=(left, right),
        make=lambda _: operator,
        is_stream=False,
        key=joined_key(_key(left), named(_key(right)) or (), *on, how),
        certain=lambda keys, _: certain_joined_key((keys[0], named(keys[1])), on, how, never_null),
        place=calling_place(),
    )


def _prefixed(relation: Relation, left_on: Key, right_on: Key, prefix: str) -> Relation:
    """A join whose right columns have a prefix, but for those that both are joined by under one name."""
    if not prefix:
        return relation
    from headrace.streams import DELETED

    make, shared = relation.make, shared_columns(left_on, right_on)

    def renaming(schemas: Sequence["pa.Schema"]) -> Operator:
        names = [each for each in schemas[1].names if each not in (*shared, DELETED)]
        operator: Any = make(schemas)
        renamed: Operator = replace(operator, right_names=tuple((name, prefix + name) for name in names))
        return renamed

    return replace(relation, make=renaming)


def _key(rows: "Stream | Table | Relation") -> Key:
    return rows.key if isinstance(rows, Table | Relation) else ()


def _columns(on: str | Sequence[str] | Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if isinstance(on, str):
        return (on,), (on,)
    if isinstance(on, Mapping):
        return tuple(on.keys()), tuple(on.values())
    return tuple(on), tuple(on)


def is_stream(rows: "Stream | Table | Relation") -> bool:
    """Whether the rows happened at a time."""
    return not isinstance(rows, Table) and (not isinstance(rows, Relation) or rows.is_stream)


def is_append_only(rows: "Stream | Table | Relation") -> bool:
    """Whether rows are never taken back."""
    return is_stream(rows) and (not isinstance(rows, Relation) or rows.append_only)


def correct_for_us(rows: "Stream | Table | Relation") -> int:
    """For how long the streams and tables behind these rows take what comes late, and nobody waited yet."""
    if isinstance(rows, Relation):
        return max(max(map(correct_for_us, rows.inputs), default=0) - rows.settled_us, 0)
    return rows.correct_for_us


def held_back_us(rows: "Stream | Table | Relation") -> int:
    """By how much the watermark of rows is behind those in their stamps, at least."""
    return rows.held_back_us if isinstance(rows, Relation) else 0
