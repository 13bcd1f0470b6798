"""A Delta table: Parquet files and a log of commits, which warehouses and data frames read.

A commit of the table has the rows and, among its metadata, the state of the follower; it is made
on the version that was read, or not at all. So two followers never both write, and no reader sees
rows without the position that they reflect. Rows are merged by `_key`, the key of their record:
files with rows that change are written anew, others stay.

A column has the type of its first value: boolean, long, double or string; arrays and objects are
JSON. Where other values follow, the table is written again with a double, if that holds all
numbers exactly, or a string, which holds everything as text.
"""

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headrace.crash_points import reached
from headrace.derived.changes import Row
from headrace.derived.pace import Pace
from headrace.derived.state import FollowState, parse_state
from headrace.derived.target import Refuse, StateLost
from headrace.errors import ConfigError, FencedError, RetriableError

try:
    import deltalake
    from deltalake import exceptions
except ModuleNotFoundError as missing:
    raise ConfigError(
        "a Delta table is written by delta-rs, which is not installed: pip install 'headrace[delta]'"
    ) from missing

__all__ = ["DeltaTarget", "column_name", "column_type", "field_name", "widened"]

KEY = "_key"
_GONE = "_gone"
_MOST_LONG = 1 << 63
_EXACT_DOUBLE = 1 << 53
_TIDY_COMMITS = 100
_MOST_RECORDS, _MOST_BYTES = 100_000, 128 << 20
_HISTORY = (1, 50, 1_000, None)
_CLAIMS = 20
_TYPES = {"boolean": pa.bool_(), "long": pa.int64(), "double": pa.float64(), "string": pa.string()}
_BATCH_ROWS = 8_192
_COLOURS = re.compile("\x1b\\[[0-9;]*m")


def column_name(field: str) -> str:
    """The column of a field: characters that Delta does not take in names are escaped as in a URL."""
    return "".join(quote(each) if each in " ,;{}()\n\t=%" else each for each in field)


def field_name(column: str) -> str:
    """The field of a column that `column_name` named."""
    return unquote(column)


def column_type(value: Any) -> str:
    """The type of a column that holds this value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long" if -_MOST_LONG <= value < _MOST_LONG else "string"
    return "double" if isinstance(value, float) else "string"


def widened(now: str, value: Any) -> str:
    """The type of a column of this type that holds this value as well; the same if it does already."""
    if now == "string" or now == column_type(value):
        return now
    if now == "double" and _is_exact(value):
        return now
    return "double" if now == "long" and isinstance(value, float) else "string"


def _is_exact(value: Any) -> bool:
    """Whether a double holds this whole number as it is."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _EXACT_DOUBLE


class DeltaTarget:
    """The Delta table of this folder or URL; it is created if it is missing, as columns are."""

    has_snapshots = True

    def __init__(self, url: str, name: str, *, every_s: float = 60.0, keep_hours: int = 24) -> None:
        parts = urlsplit(url)
        self._url = unquote(parts.path) if parts.scheme == "file" else url
        self._name = name
        self._said = f"headrace.follower.{name}"
        self._keep_hours = keep_hours
        self._commits = 0
        self._opened: deltalake.DeltaTable | None = None
        self._pinned = False
        self.pace = Pace(interval_s=every_s, most_records=_MOST_RECORDS, most_bytes=_MOST_BYTES)

    # --- state --------------------------------------------------------------------------------

    def state(self) -> FollowState | None:
        with self._errors():
            return None if (found := self._table()) is None else self._read_state(found)

    def is_empty(self) -> bool:
        with self._errors():
            found = self._table()
            return found is None or found.to_pyarrow_dataset().count_rows() == 0

    def claim(self, state: FollowState) -> None:
        with self._errors():
            for _ in range(_CLAIMS):
                with contextlib.suppress(exceptions.CommitFailedError):
                    self._note(self._table() or self._created(), state)
                    return
            raise RetriableError(f"{self._url} is written by others all the time; it is tried again")

    def apply(
        self, upserts: Mapping[bytes, Row], deletes: Collection[bytes], state: FollowState, refuse: Refuse
    ) -> None:
        with self._errors():
            found = self._table()
            if found is None:
                raise StateLost(f"{self._url} is no longer there")
            self._require_owner(found, state)
            try:
                self._write(found, upserts, deletes, state, refuse)
            except exceptions.CommitFailedError as error:
                self._require_owner(self._table() or found, state)
                raise RetriableError(f"{self._url} was changed meanwhile; it is read again") from error
            reached("ledger written")
            self._tidy(found)

    def delete_identities(self, identities: Collection[bytes], state: FollowState) -> None:
        self.apply({}, identities, state, lambda *_: None)

    # --- rows ---------------------------------------------------------------------------------

    def get(self, keys: Collection[bytes]) -> dict[bytes, Row]:
        with self._errors():
            found = self._table()
            if found is None or not keys:
                return {}
            return dict(_rows(found, keys))

    def identity(self, key: bytes) -> bytes:
        return key

    def stored(self, row: Row) -> Row:
        with self._errors():
            types = {} if (found := self._table()) is None else _types(found)
        return {name: _stored(each, types.get(column_name(name), "")) for name, each in row.items()}

    def rows(self) -> Iterator[tuple[bytes, Row]]:
        with self._errors():
            if (found := self._table()) is not None:
                yield from _rows(found, None)

    @contextlib.contextmanager
    def reading(self) -> Iterator[FollowState | None]:
        with self._errors():
            found = self._table()
            state = None if found is None else self._moved_to_now(found)
            self._pinned = True
            try:
                yield state
            finally:
                self._pinned = False

    def read_together(self, identities: Collection[bytes]) -> tuple[FollowState | None, dict[bytes, Row]]:
        with self.reading() as state:
            return state, self.get(identities)

    def close(self) -> None:
        self._opened = None

    # --- commits ------------------------------------------------------------------------------

    def _write(
        self,
        table: "deltalake.DeltaTable",
        upserts: Mapping[bytes, Row],
        deletes: Collection[bytes],
        state: FollowState,
        refuse: Refuse,
    ) -> None:
        """One commit with rows and state, or none."""
        types = _types(table)
        rows, wanted = _fitting(upserts, types, refuse)
        reached("rows written")
        before = table.version()
        if any(wanted[each] != kind for each, kind in types.items()):
            self._write_again(table, rows, deletes, wanted, state)
        elif rows or deletes:
            self._merge(table, rows, deletes, wanted, state)
        if table.version() == before:  # a merge that changes nothing makes no commit
            self._note(table, state)

    def _merge(
        self,
        table: "deltalake.DeltaTable",
        rows: Mapping[bytes, Row],
        deletes: Collection[bytes],
        types: Mapping[str, str],
        state: FollowState,
    ) -> None:
        source = _arrow(rows, deletes, types)
        merge = table.merge(
            source,
            f"t.{KEY} = s.{KEY}",
            source_alias="s",
            target_alias="t",
            merge_schema=True,
            commit_properties=self._properties(state),
        )
        merge = merge.when_matched_delete(f"s.{_GONE}")
        if rows:
            merge = merge.when_matched_update_all(except_cols=[_GONE])
            merge = merge.when_not_matched_insert_all(predicate=f"s.{_GONE} = false", except_cols=[_GONE])
        merge.execute()

    def _write_again(
        self,
        table: "deltalake.DeltaTable",
        rows: Mapping[bytes, Row],
        deletes: Collection[bytes],
        types: dict[str, str],
        state: FollowState,
    ) -> None:
        """The whole table with columns of other types, in one commit."""
        now = _types(table)
        for name, kind in types.items():
            if kind == "double" and now.get(name) == "long" and not _is_exact_column(table, name):
                types[name] = "string"
        schema = _schema(types)
        changed = pa.array([*rows, *deletes], pa.binary())
        kept = table.to_pyarrow_dataset().scanner(batch_size=_BATCH_ROWS)

        def batches() -> Iterator[pa.RecordBatch]:
            for each in kept.to_batches():
                yield _recast(each.filter(pc.invert(_is_one_of(each, changed))), schema)
            yield from _arrow(rows, (), types).select(schema.names).cast(schema).to_batches()

        deltalake.write_deltalake(
            table,
            pa.RecordBatchReader.from_batches(schema, batches()),
            mode="overwrite",
            schema_mode="overwrite",
            commit_properties=self._properties(state),
        )

    def _note(self, table: "deltalake.DeltaTable", state: FollowState) -> None:
        """A commit of the state alone."""
        schema = table.schema()
        table.create_write_transaction([], "append", schema, commit_properties=self._properties(state))
        table.update_incremental()

    def _properties(self, state: FollowState) -> "deltalake.CommitProperties":
        """What makes a commit ours: the state, and that no other commit came in between."""
        said = {self._said: state.to_json().decode()}
        return deltalake.CommitProperties(custom_metadata=said, max_commit_retries=0)

    def _tidy(self, table: "deltalake.DeltaTable") -> None:
        """Now and then puts small files together, and removes those that no kept version has."""
        self._commits += 1
        if self._commits % _TIDY_COMMITS:
            return
        with contextlib.suppress(exceptions.CommitFailedError):
            table.optimize.compact()
            table.vacuum(self._keep_hours, dry_run=False, enforce_retention_duration=False)

    # --- the table ----------------------------------------------------------------------------

    def _table(self) -> "deltalake.DeltaTable | None":
        """The table as it is now, or as it was when `reading` began; None if there is none."""
        if self._opened is not None and self._pinned:
            return self._opened
        try:
            opened = deltalake.DeltaTable(self._url)
        except exceptions.TableNotFoundError:
            self._opened = None
            return None
        if KEY not in _names(opened):
            raise ConfigError(f"{self._url} is a Delta table without a column {KEY}: name another folder")
        self._opened = opened
        return opened

    def _created(self) -> "deltalake.DeltaTable":
        schema = pa.schema([pa.field(KEY, pa.binary(), nullable=False)])
        return deltalake.DeltaTable.create(self._url, schema=schema, mode="ignore")

    def _read_state(self, table: "deltalake.DeltaTable") -> FollowState | None:
        """The newest of our commits; those of others may have come since.

        The history also has commits after the version that was opened.
        """
        for count in _HISTORY:
            found = table.history(count)
            for commit in found:
                if self._said in commit:
                    return parse_state(commit[self._said])
            if count is not None and len(found) < count:
                break
        return None

    def _moved_to_now(self, table: "deltalake.DeltaTable") -> FollowState | None:
        """The state of the newest version, to which the table is moved: rows and state are of one commit."""
        for _ in range(_CLAIMS):
            version = table.version()
            state = self._read_state(table)
            table.update_incremental()
            if table.version() == version:
                return state
        raise RetriableError(f"{self._url} is written to all the time; it is read again")

    def _require_owner(self, table: "deltalake.DeltaTable", state: FollowState) -> None:
        found = self._read_state(table)
        if found is None:
            raise StateLost(f"{self._url} no longer has the position of {self._name}")
        if found.owner != state.owner:
            raise FencedError(f"another process follows into {self._url} as {self._name}")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except exceptions.DeltaProtocolError as error:
            raise ConfigError(f"{self._url}: {_line(error)}; delta-rs cannot write this table") from error
        except (exceptions.DeltaError, OSError) as error:
            self._opened = None
            raise RetriableError(f"{self._url}: {_line(error)}") from error


def _line(error: Exception) -> str:
    """What delta-rs says, on one line and without its colours."""
    return " ".join(_COLOURS.sub("", str(error)).split())


def _names(table: "deltalake.DeltaTable") -> list[str]:
    return [each.name for each in table.schema().fields]


def _types(table: "deltalake.DeltaTable") -> dict[str, str]:
    """The columns and their types, without the key's."""
    return {each.name: str(each.type.type) for each in table.schema().fields if each.name != KEY}


def _schema(types: Mapping[str, str]) -> pa.Schema:
    columns = [pa.field(name, _TYPES[kind]) for name, kind in types.items()]
    return pa.schema([pa.field(KEY, pa.binary(), nullable=False), *columns])


def _fitting(
    upserts: Mapping[bytes, Row], now: Mapping[str, str], refuse: Refuse
) -> tuple[dict[bytes, Row], dict[str, str]]:
    """The rows by column, but those that no column can hold, and the types that hold them all."""
    rows: dict[bytes, Row] = {}
    types, letters = dict(now), {each.lower(): each for each in (KEY, _GONE, *now)}
    for key, row in upserts.items():
        there = {column_name(name): each for name, each in row.items() if each is not None}
        clash = next((each for each in there if letters.get(each.lower(), each) != each), None)
        taken = next((each for each in there if each in (KEY, _GONE)), None)
        if clash or taken or "" in there:
            refuse(
                key,
                f"field {clash or taken or ''!r} is a column already, or one in other letters, or no name",
            )
            continue
        for name, value in there.items():
            letters.setdefault(name.lower(), name)
            types[name] = widened(types[name], value) if name in types else column_type(value)
        rows[key] = there
    return rows, types


def _arrow(rows: Mapping[bytes, Row], deletes: Collection[bytes], types: Mapping[str, str]) -> pa.Table:
    """What is merged: rows, and the keys of those that are gone."""
    gone = [False] * len(rows) + [True] * len(deletes)
    columns = {KEY: pa.array([*rows, *deletes], pa.binary()), _GONE: pa.array(gone, pa.bool_())}
    for name, kind in types.items() if rows else ():
        values = [_value(row.get(name), kind) for row in rows.values()]
        columns[name] = pa.array(values + [None] * len(deletes), _TYPES[kind])
    return pa.table(columns)


def _recast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of the table in columns of other types."""
    columns = [_column(batch, field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    found = batch.column(field.name)
    if field.type == pa.string() and not pa.types.is_string(found.type):
        return pa.array([_value(each, "string") for each in found.to_pylist()], pa.string())
    return found.cast(field.type)


def _is_exact_column(table: "deltalake.DeltaTable", name: str) -> bool:
    """Whether doubles hold all whole numbers of a column as they are."""
    beyond = (pc.field(name) > _EXACT_DOUBLE) | (pc.field(name) < -_EXACT_DOUBLE)
    return not table.to_pyarrow_dataset().count_rows(filter=beyond)


def _is_one_of(batch: pa.RecordBatch, keys: pa.Array) -> pa.Array:
    """Which rows have one of these keys.

    Not a filter of the dataset: Arrow holds that against the files' least and greatest keys, which
    delta-rs gives in a type that Arrow does not compare with binary.
    """
    return pc.is_in(batch.column(KEY), value_set=keys)


def _rows(table: "deltalake.DeltaTable", only: Collection[bytes] | None) -> Iterator[tuple[bytes, Row]]:
    keys = None if only is None else pa.array(only, pa.binary())
    for batch in table.to_pyarrow_dataset().to_batches(batch_size=_BATCH_ROWS):
        wanted = batch if keys is None else batch.filter(_is_one_of(batch, keys))
        for said in wanted.to_pylist():
            key = said.pop(KEY)
            yield key, {field_name(name): each for name, each in said.items() if each is not None}


def _value(value: Any, kind: str) -> Any:
    """A value as a column of this type holds it."""
    if value is None or (isinstance(value, str) and kind == "string"):
        return value
    if kind == "string":
        return orjson.dumps(value).decode()
    return float(value) if kind == "double" else value


def _stored(value: Any, kind: str) -> Any:
    return _value(value, kind) if kind in _TYPES else value
