"""The connection to a MySQL or MariaDB server: address, protocol, login, and the socket.

`protocol`, `rsa` and `login` are without I/O, `connection` has the socket, `sql` writes names and texts.
"""

from headrace.capture.mysql.wire.address import MysqlAddress
from headrace.capture.mysql.wire.connection import Connection, ServerBusy, ServerError
from headrace.capture.mysql.wire.protocol import Body, binlog_dump, read_row
from headrace.capture.mysql.wire.sql import identifier, literal, qualified

__all__ = [
    "Body",
    "Connection",
    "MysqlAddress",
    "ServerBusy",
    "ServerError",
    "binlog_dump",
    "identifier",
    "literal",
    "qualified",
    "read_row",
]
