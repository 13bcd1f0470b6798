"""PostgreSQL (13 and newer) as a source of changes: our own wire protocol, decoder and snapshots.

`PostgresSource` is what `CaptureRun` drives; `PostgresAddress` reads its URL. The rest, from the
bottom up: `protocol`, `scram` and `login` are the protocol without I/O, `connection` has the
socket; `pgoutput` reads changes and `values` their values, `rows` writes them as JSON;
`catalog`, `setup` and `resuming` look at the database, `visibility` and `chunks` read its rows,
`tables` follows its columns, and `stream` and `source` put everything together.
"""

from headrace.capture.postgres.address import PostgresAddress
from headrace.capture.postgres.connection import Connection as PostgresConnection
from headrace.capture.postgres.connection import ServerError
from headrace.capture.postgres.source import PostgresSource
from headrace.capture.postgres.sql import identifier, literal

__all__ = [
    "PostgresAddress",
    "PostgresConnection",
    "PostgresSource",
    "ServerError",
    "identifier",
    "literal",
]
