"""Databases as streams: every change of a table becomes a record of its topic, exactly once.

A `Source` reads one database (`capture.sqlite`, `capture.postgres`, `capture.mysql`); `CaptureRun`
drives it: it takes a snapshot in chunks while changes continue, and writes everything through a
`CaptureWriter`, rows and the position after them in one transaction of the log. Whatever is
killed, the next run continues from there. `source` says what a reader of another database has
to promise; `envelope` is Debezium's format of values.

`capture.connect` is the way to databases that only Debezium reads, through Kafka Connect.

May import `client` and what is below it; a database's driver in its own source only.
"""

from headrace.capture.catalog import CAPTURES_TOPIC, Catalog, Entry, declare_captures
from headrace.capture.change import (
    Change,
    ChangeBlock,
    Column,
    EncodedChanges,
    Position,
    Resnapshot,
    TableSchema,
    Transaction,
    one_by_one,
)
from headrace.capture.host import CaptureHost
from headrace.capture.open import (
    absolute_url,
    check_database,
    describe_table,
    open_source,
    own_topics,
    release_database,
    sqlite_path,
)
from headrace.capture.run import CaptureRun
from headrace.capture.source import Chunk, FrozenTables, Lack, Lag, Source, SourceChanged
from headrace.capture.spec import CaptureSpec, parse_spec
from headrace.capture.state import CaptureState, parse_state
from headrace.capture.status import Status, TableStatus, state_of
from headrace.capture.writer import CaptureWriter, schema_topic, state_topic, table_topic, transaction_topic

__all__ = [
    "CAPTURES_TOPIC",
    "CaptureHost",
    "CaptureRun",
    "CaptureSpec",
    "CaptureState",
    "CaptureWriter",
    "Catalog",
    "Change",
    "ChangeBlock",
    "Chunk",
    "Column",
    "EncodedChanges",
    "Entry",
    "FrozenTables",
    "Lack",
    "Lag",
    "Position",
    "Resnapshot",
    "Source",
    "SourceChanged",
    "Status",
    "TableSchema",
    "TableStatus",
    "Transaction",
    "absolute_url",
    "check_database",
    "declare_captures",
    "describe_table",
    "one_by_one",
    "open_source",
    "own_topics",
    "parse_spec",
    "parse_state",
    "release_database",
    "schema_topic",
    "sqlite_path",
    "state_of",
    "state_topic",
    "table_topic",
    "transaction_topic",
]
