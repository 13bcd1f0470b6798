"""MySQL (8.0 and newer) and MariaDB (10.6 and newer) as sources of changes, by a reader of our own.

`MysqlSource` is what `CaptureRun` drives; `MysqlAddress` reads its URL. `wire` is the connection to the
server, `decode` what it says. On top of them `catalog`, `setup` and `resuming` look at the database,
`chunks` and `frozen` read its rows, `tables` follows its columns, and `stream`, `group` and `source` put
everything together.
"""

from headrace.capture.mysql.source import MysqlSource
from headrace.capture.mysql.wire import Connection as MysqlConnection
from headrace.capture.mysql.wire import MysqlAddress, identifier, literal
from headrace.capture.mysql.wire import ServerError as MysqlServerError

__all__ = [
    "MysqlAddress",
    "MysqlConnection",
    "MysqlServerError",
    "MysqlSource",
    "identifier",
    "literal",
]
