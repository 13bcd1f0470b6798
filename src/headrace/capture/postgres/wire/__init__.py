"""The connection to a PostgreSQL server: address, protocol, login, and the socket.

`protocol`, `scram` and `login` are without I/O, `connection` has the socket, `sql` writes names and texts.
"""

from headrace.capture.postgres.wire.address import PostgresAddress
from headrace.capture.postgres.wire.connection import Connection, ServerError, format_lsn, parse_lsn
from headrace.capture.postgres.wire.protocol import Body, Frames, read_raw_row
from headrace.capture.postgres.wire.sql import identifier, literal, qualified

__all__ = [
    "Body",
    "Connection",
    "Frames",
    "PostgresAddress",
    "ServerError",
    "format_lsn",
    "identifier",
    "literal",
    "parse_lsn",
    "qualified",
    "read_raw_row",
]
