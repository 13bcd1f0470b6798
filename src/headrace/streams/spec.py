"""What a stream is: which topic, how its values are read, and what its time means.

A spec is plain values only: it travels to Spark's workers, and into the check
whether a changed application still fits its checkpoint. All spans are microseconds.
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headrace.errors import ConfigError
from headrace.streams.ddl import arrow_schema
from headrace.streams.starts import parse_start

__all__ = ["PROCESSING_TIME", "RESERVED", "StreamSpec", "rows_schema", "value_fields"]

PROCESSING_TIME: Final = "processing time"  # no column can have this name by accident
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
class StreamSpec:
    """One stream; raises ConfigError if it makes no sense, before anything is read.

    `schema` is Spark's text: fields of the value, and columns about the record
    (`_topic`, `_partition`, `_offset`, `_timestamp`, `_key`, `_value`, `_headers`).
    `decoder` "json" reads fields from the value; "raw" leaves it as bytes, so that only
    columns about the record may be named. `event_time` names a column of type
    timestamp, date, or int and long (milliseconds since the epoch); None means the
    record's own timestamp, and PROCESSING_TIME the moment a micro-batch is planned.
    `sent_at` names a column with the sender's clock at the time of sending, by which
    `event_time` is put right. `on_gap` says what happens when records were removed
    before they were read: "fail", or "skip", which counts them. `group` is the
    consumer group as which progress shows. `letters_of` are the ids of the query that
    reads it and of those whose dead letters stand for its own, `begins` the partitions and
    offsets at which it began: by these it knows what was sent again. What `start` stands
    for is asked of the log once, when a query begins, and is `begins` from then on.
    """

    topic: str
    schema: str = ""
    decoder: str = "json"
    event_time: str | None = None
    sent_at: str | None = None
    lateness_us: int = 0
    max_ahead_us: int = 3_600_000_000
    idle_after_us: int = 30_000_000
    start: str = "earliest"
    on_gap: str = "fail"
    group: str = ""
    letters_of: tuple[str, ...] = ()
    begins: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        _check_words(self)
        columns = arrow_schema(self.schema)
        _check_columns(self, columns)
        _check_time_columns(self, columns)
        parse_start(self.start)


def value_fields(spec: StreamSpec) -> pa.Schema:
    """The columns of the schema that are fields of the value."""
    return pa.schema([field for field in arrow_schema(spec.schema) if not _is_about(field.name)])


def rows_schema(spec: StreamSpec) -> pa.Schema:
    """The columns of the stream's rows: what the schema names, in its order, then RESERVED."""
    named = [field for field in arrow_schema(spec.schema) if field.name not in RESERVED.names]
    return pa.schema([*named, *RESERVED])


def _is_about(name: str) -> bool:
    return name in _ABOUT or name in RESERVED.names


def _check_words(spec: StreamSpec) -> None:
    for name, value, known in (
        ("decoder", spec.decoder, ("json", "raw")),
        ("on_gap", spec.on_gap, ("fail", "skip")),
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
    if spec.decoder == "raw" and len(fields):
        raise ConfigError(
            f"decoder='raw' reads no fields from the value, but the schema names {', '.join(fields.names)}; "
            "name _key, _value, _headers, or use decoder='json'"
        )
    from headrace.streams.json_values import check_fields  # not where a spec is merely unpacked

    check_fields(fields)


def _check_time_columns(spec: StreamSpec, columns: pa.Schema) -> None:
    for option, name in (("event_time", spec.event_time), ("sent_at", spec.sent_at)):
        if name is None or (option == "event_time" and name == PROCESSING_TIME):
            continue
        if name not in columns.names or _is_about(name):
            raise ConfigError(f"{option}={name!r} is not a field of the schema {spec.schema!r}")
        kind = columns.field(name).type
        if not (pa.types.is_timestamp(kind) or kind in (pa.int32(), pa.int64(), pa.date32())):
            raise ConfigError(
                f"{option}={name!r} is of type {kind}; declare it as timestamp (ISO 8601 text in JSON), "
                "date, or long (milliseconds since the epoch)"
            )
    if spec.sent_at is not None and spec.event_time in (None, PROCESSING_TIME):
        raise ConfigError("sent_at corrects the clock of a column of event times; name that as event_time")
