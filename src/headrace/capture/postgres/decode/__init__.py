"""What PostgreSQL says, as values: messages of the stream, rows and their values as JSON. No I/O.

`pgoutput` reads messages, `rows` writes rows as JSON, `values` each value, `blocks` many rows in one
call of a kernel.
"""

from headrace.capture.postgres.decode.blocks import AnsweredRows, MessageBlock, answered_values, row_table
from headrace.capture.postgres.decode.pgoutput import (
    Begin,
    Commit,
    Delete,
    Insert,
    Keepalive,
    Message,
    RelationColumn,
    RelationMessage,
    Transactions,
    Truncate,
    Update,
    WalData,
    read_copy_data,
    read_message,
)
from headrace.capture.postgres.decode.rows import RowColumn, RowWriter
from headrace.capture.postgres.decode.values import Encoding, Kind, TypeFacts, encoding_of

__all__ = [
    "AnsweredRows",
    "Begin",
    "Commit",
    "Delete",
    "Encoding",
    "Insert",
    "Keepalive",
    "Kind",
    "Message",
    "MessageBlock",
    "RelationColumn",
    "RelationMessage",
    "RowColumn",
    "RowWriter",
    "Transactions",
    "Truncate",
    "TypeFacts",
    "Update",
    "WalData",
    "answered_values",
    "encoding_of",
    "read_copy_data",
    "read_message",
    "row_table",
]
