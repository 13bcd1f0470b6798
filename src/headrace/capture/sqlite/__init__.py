"""SQLite as a source: triggers write every change to a change table, in the writer's own transaction.

So it does not matter who writes: any process, any library, with or without this capture
running. `tables` reads what a table is, `triggers` makes the statements, `install` puts them into
the database and takes them out, `source` reads the change table; `values` and `keys` make JSON of it.
"""

from headrace.capture.sqlite.source import SqliteSource

__all__ = ["SqliteSource"]
