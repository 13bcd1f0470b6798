"""PostgreSQL (13 and newer) as a source of changes: our own wire protocol, decoder and snapshots.

`PostgresSource` is what `CaptureRun` drives; `PostgresAddress` reads its URL. `wire` is the connection to
the server, `decode` what it says. On top of them `catalog`, `setup` and `resuming` look at the database,
`visibility`, `chunks`, `loading` and `frozen` read its rows, `partitions` and `tables` follow its columns,
and `stream` and `source` put everything together.
"""

from headrace.capture.postgres.source import PostgresSource, own_name
from headrace.capture.postgres.wire import Connection as PostgresConnection
from headrace.capture.postgres.wire import PostgresAddress, ServerError, identifier, literal

__all__ = [
    "PostgresAddress",
    "PostgresConnection",
    "PostgresSource",
    "ServerError",
    "identifier",
    "literal",
    "own_name",
]
