"""What MySQL says, as values: events of the binary log, the rows in them, each value as JSON. No I/O.

`binlog` reads events, `table_map` and `rows` the rows in them, `values` and `json_binary` their values,
`blocks` many rows in one call of a kernel; `gtid` counts transactions, `statements` tells what a
statement means.
"""

from headrace.capture.mysql.decode.binlog import (
    ROW_EVENTS,
    BinlogEvent,
    EventReader,
    EventType,
    Gtid,
    read_gtid,
    read_payload,
    read_query,
    read_rotate,
    read_rows,
)
from headrace.capture.mysql.decode.blocks import AnsweredRows, RowsBlock, log_table, source_of_row, text_table
from headrace.capture.mysql.decode.charsets import BINARY, decoder
from headrace.capture.mysql.decode.gtid import DomainPositions, GtidSet
from headrace.capture.mysql.decode.rows import LogRows, TextRows
from headrace.capture.mysql.decode.statements import Meaning, Statement, mentions, read_statement
from headrace.capture.mysql.decode.table_map import TableMap, read_table_map, table_id
from headrace.capture.mysql.decode.values import MALFORMED, Kind, LoggedColumn, kind_of, log_reader

__all__ = [
    "BINARY",
    "MALFORMED",
    "ROW_EVENTS",
    "AnsweredRows",
    "BinlogEvent",
    "DomainPositions",
    "EventReader",
    "EventType",
    "Gtid",
    "GtidSet",
    "Kind",
    "LogRows",
    "LoggedColumn",
    "Meaning",
    "RowsBlock",
    "Statement",
    "TableMap",
    "TextRows",
    "decoder",
    "kind_of",
    "log_reader",
    "log_table",
    "mentions",
    "read_gtid",
    "read_payload",
    "read_query",
    "read_rotate",
    "read_rows",
    "read_statement",
    "read_table_map",
    "source_of_row",
    "table_id",
    "text_table",
]
