"""What a stream is: which topic, how its values are read, and what its time means.

A spec is plain values only: it travels to Spark's workers, and into the check
whether a changed application still fits its checkpoint. All spans are microseconds.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headrace.errors import ConfigError
from headrace.nearest import nearest, no_such
from headrace.streams.ddl import arrow_schema
from headrace.streams.start import parse_start

__all__ = [
    "DELETED",
    "PROCESSING_TIME",
    "RESERVED",
    "UNCHANGED",
    "StreamSpec",
    "counted_time",
    "field_path",
    "field_type",
    "rows_schema",
    "value_fields",
]

PROCESSING_TIME: Final = "processing time"  # no column can have this name by accident
DELETED: Final = "_deleted"  # of a table's rows: whether the key is gone
UNCHANGED: Final = "_unchanged"  # of changes: the fields that kept their value, a bit for each, or null
_UTC = pa.timestamp("us", tz="UTC")
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

# Behind the fields of every row, whether asked for or not.
RESERVED: Final = pa.schema(
    [
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", _UTC),
        ("_event_time", pa.int64()),
        ("_watermark", pa.int64()),
    ]
)
_ABOUT = {"_topic": pa.string(), "_key": pa.binary(), "_value": pa.binary(), "_headers": _HEADERS}


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedColumns:
    """The columns of a table that are read, with the types that its database calls them by.

    `topic` is the schema topic of its capture, `read_ms` when they were asked for: what was written there
    before is older.
    """

    topic: str
    table: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    read_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """One stream; raises ConfigError if it makes no sense, before anything is read.

    `schema` is Spark's text: fields of the value, and columns about the record
    (`_topic`, `_partition`, `_offset`, `_timestamp`, `_key`, `_value`, `_headers`).
    `decoder` "json" reads fields from the value; "raw" leaves it as bytes, so that only
    columns about the record may be named. `lenient` reads JSON values that are nearly of the
    schema, too (`headrace.streams.decode.json_documents`). `event_time` names a column of type
    timestamp, date, or int and long (time since the epoch in `time_unit`: s, ms, us or ns),
    or a field of a struct as `payload.at`, or is an expression over them
    (`headrace.streams.decode.time_expressions`); None means the record's own timestamp, and
    PROCESSING_TIME the moment a micro-batch is planned.
    `sent_at` names a column with the sender's clock at the time of sending, by which
    `event_time` is put right. `on_gap` says what happens when records were removed
    before they were read: "fail", or "skip", which counts them. `group` is the
    consumer group as which progress shows. `letters_of` are the ids of the query that
    reads it and of those whose dead letters stand for its own, `begins` the partitions and
    offsets at which it began: by these it knows what was sent again. What `start` stands
    for is asked of the log once, when a query begins, and is `begins` from then on.
    `source_lateness_us` is there if the stream goes on with the event time of the query that
    makes its topic: the lateness in the watermarks which the records bring. `maker` is then the
    group, the topic and the id of that query, by which it is asked for its own watermark.
    `table` says that records are rows of a table, "upserts" or "debezium", whose key is
    `table_key`: a row then has a column `_deleted`, and its event time is from when it is valid.
    `transactions` is the topic of the cuts at which a micro-batch may end; empty: anywhere.
    `captured` are the columns of the database's table, if the topic has its changes.
    """

    topic: str
    schema: str = ""
    decoder: str = "json"
    event_time: str | None = None
    sent_at: str | None = None
    time_unit: str = "ms"
    lenient: bool = False
    lateness_us: int = 0
    max_ahead_us: int = 3_600_000_000
    idle_after_us: int = 30_000_000
    start: str = "earliest"
    on_gap: str = "fail"
    group: str = ""
    letters_of: tuple[str, ...] = ()
    begins: tuple[tuple[int, int], ...] = ()
    source_lateness_us: int | None = None
    maker: tuple[str, str, str] = ("", "", "")
    table: str = ""
    table_key: tuple[str, ...] = ()
    transactions: str = ""
    captured: CapturedColumns | None = None

    @property
    def follows_maker(self) -> bool:
        """Whether the query that makes the topic tells its watermark."""
        return self.source_lateness_us is not None

    def from_maker(self, watermark_us: int) -> int:
        """A watermark of the query that makes the topic, with the lateness of this stream."""
        assert self.source_lateness_us is not None
        return watermark_us - (self.lateness_us - self.source_lateness_us)

    def __post_init__(self) -> None:
        _check_words(self)
        columns = arrow_schema(self.schema)
        _check_columns(self, columns)
        _check_time_columns(self, columns)
        parse_start(self.start)


def value_fields(spec: StreamSpec) -> pa.Schema:
    """The columns of the schema that are fields of the value."""
    return pa.schema([field for field in arrow_schema(spec.schema) if not _is_about(field.name)])


def field_path(columns: pa.Schema, name: str) -> tuple[str, ...]:
    """The way to a column, or to a field inside of structs, whose names stand before points; () if none."""
    if name in columns.names:
        return (name,)
    return _path(list(columns), tuple(name.split(".")))


def _path(fields: Sequence[pa.Field], names: tuple[str, ...]) -> tuple[str, ...]:
    found = next((field for field in fields if field.name == names[0]), None)
    if found is None or len(names) == 1:
        return () if found is None else names
    inner = list(found.type) if pa.types.is_struct(found.type) else []
    return names if _path(inner, names[1:]) else ()


def field_type(columns: pa.Schema, path: Sequence[str]) -> pa.DataType:
    """The type at the end of a way."""
    kind = columns.field(path[0]).type
    for name in path[1:]:
        kind = kind.field(name).type
    return kind


def counted_time(spec: StreamSpec) -> str | None:
    """Of a stream whose event times are numbers, which they are and in what; None of others."""
    columns = arrow_schema(spec.schema)
    path = field_path(columns, spec.event_time or "")
    if not path or not pa.types.is_integer(field_type(columns, path)):
        return None
    return f"{spec.event_time} is read as {spec.time_unit} since the epoch"


def rows_schema(spec: StreamSpec) -> pa.Schema:
    """The columns of the stream's rows: what the schema names, in its order, then RESERVED."""
    named = [field for field in arrow_schema(spec.schema) if field.name not in RESERVED.names]
    deleted = [pa.field(DELETED, pa.bool_())] if spec.table else []
    unchanged = [pa.field(UNCHANGED, pa.binary())] if spec.table == "debezium" else []
    return pa.schema([*named, *deleted, *unchanged, *RESERVED])


def _is_about(name: str) -> bool:
    return name in _ABOUT or name in RESERVED.names


def _check_words(spec: StreamSpec) -> None:
    for name, value, known in (
        ("decoder", spec.decoder, ("json", "raw")),
        ("on_gap", spec.on_gap, ("fail", "skip")),
        ("time_unit", spec.time_unit, ("s", "ms", "us", "ns")),
        ("table", spec.table, ("", "upserts", "debezium")),
    ):
        if value not in known:
            raise ConfigError(f"{name}={value!r} is not {' or '.join(map(repr, known))}")
    for name in ("lateness_us", "max_ahead_us", "idle_after_us"):
        if getattr(spec, name) < 0:
            raise ConfigError(f"{name}={getattr(spec, name)} is negative; a span of time is 0 or more")
    if not spec.topic:
        raise ConfigError("a stream needs a topic")


def _check_columns(spec: StreamSpec, columns: pa.Schema) -> None:
    for field in columns:
        wanted = _ABOUT.get(field.name)
        if field.name in RESERVED.names:
            wanted = RESERVED.field(field.name).type
        if wanted is not None and field.type != wanted:
            raise ConfigError(f"column {field.name!r} is of type {wanted}, not {field.type}")
        if wanted is None and field.name.startswith("_"):
            raise ConfigError(
                f"there is no column {field.name!r} about a record; names that begin with _ are reserved. "
                "Records that cannot be read go to the dead-letter topic, with their reason"
            )
    fields = value_fields(spec)
    if spec.table:
        _check_table(spec, fields)
    if spec.decoder == "raw" and len(fields):
        raise ConfigError(
            f"decoder='raw' reads no fields from the value, but the schema names {', '.join(fields.names)}; "
            "name _key, _value, _headers, or use decoder='json'"
        )
    from headrace.streams.decode.json_values import check_fields  # not where a spec is merely unpacked

    check_fields(fields)


def _check_table(spec: StreamSpec, fields: pa.Schema) -> None:
    if spec.decoder != "json":
        raise ConfigError(f"table {spec.topic!r} is read from JSON; it has no decoder={spec.decoder!r}")
    if not spec.table_key:
        raise ConfigError(f"table {spec.topic!r} needs a key: the columns that tell its rows apart")
    for name in spec.table_key:
        if name not in fields.names:
            raise ConfigError(f"the key of table {spec.topic!r}: {no_such('column', name, fields.names)}")


def _check_expression(spec: StreamSpec, text: str) -> None:
    from headrace.streams.decode.time_expressions import TimeExpression  # hardly any stream has one

    TimeExpression(text, value_fields(spec))


def _as_text(option: str, given: object) -> str:
    """How to write what was given as something else than text."""
    column = re.fullmatch(r"Column<'(\w+)'>", str(given))
    example = column[1] if column is not None else "to_timestamp(concat(day, ' ', clock))"
    return f'{option} is a {type(given).__name__}, and must be text: {option}="{example}"'


def _check_time_columns(spec: StreamSpec, columns: pa.Schema) -> None:
    for option, name in (("event_time", spec.event_time), ("sent_at", spec.sent_at)):
        if name is not None and not isinstance(name, str):  # first: a PySpark column is equal to nothing
            raise ConfigError(_as_text(option, name))
        if name is None or (option == "event_time" and name == PROCESSING_TIME):
            continue
        path = field_path(columns, name)
        if option == "event_time" and not path and not re.fullmatch(r"[\w.]+", name):
            _check_expression(spec, name)
            continue
        if not path or _is_about(path[0]):
            meant = nearest(name, value_fields(spec).names)
            raise ConfigError(
                f"{option}={name!r} is not a field of the schema {spec.schema!r}; "
                + (f"did you mean {meant!r}? N" if meant is not None else "n")
                + "ame a column, or a field inside one as 'payload.at'"
            )
        kind = field_type(columns, path)
        if not (pa.types.is_timestamp(kind) or kind in (pa.int32(), pa.int64(), pa.date32())):
            raise ConfigError(
                f"{option}={name!r} is of type {kind}; declare it as timestamp (ISO 8601 text in JSON), "
                "date, or long (time since the epoch; time_unit says in what)"
            )
    if spec.sent_at is not None and spec.event_time in (None, PROCESSING_TIME):
        raise ConfigError("sent_at corrects the clock of a column of event times; name that as event_time")
