"""MySQL (8.0 and newer) and MariaDB (10.6 and newer) as sources of changes, by a reader of our own.

`MysqlSource` is what `CaptureRun` drives; `MysqlAddress` reads its URL. The rest, from the bottom
up: `protocol`, `rsa` and `login` are the protocol without I/O, `connection` has the socket;
`binlog` reads the events of the binary log, `table_map` and `rows` the rows in them, `values` and
`json_binary` their values; `gtid` counts transactions; `catalog`, `setup` and `resuming` look at
the database, `chunks` reads its rows, `statements` and `tables` follow
its columns, and `stream`, `group` and `source` put everything together.
"""

from headrace.capture.mysql.address import MysqlAddress
from headrace.capture.mysql.connection import Connection as MysqlConnection
from headrace.capture.mysql.connection import ServerError as MysqlServerError
from headrace.capture.mysql.source import MysqlSource
from headrace.capture.mysql.sql import identifier, literal

__all__ = [
    "MysqlAddress",
    "MysqlConnection",
    "MysqlServerError",
    "MysqlSource",
    "identifier",
    "literal",
]
