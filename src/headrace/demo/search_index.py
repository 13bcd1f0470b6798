"""The shop's search index, which follows its customers: a SQLite file that any SQLite reads."""

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

__all__ = ["SearchIndex"]

_SHOWN = 4


class SearchIndex:
    """Reads the index as it is now; before its follower has made it, there is nothing in it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def rows(self) -> list[dict[str, Any]]:
        """Every customer that it has."""
        return [json.loads(row) for (row,) in self._read("SELECT row FROM customers")]

    def headline(self, words: str) -> str:
        """The customers whom a search finds, as a line; empty if there are none."""
        found = self._read("SELECT name FROM customers WHERE customers MATCH ? ORDER BY name", words)
        names = " · ".join(name for (name,) in found[:_SHOWN])
        return f"search for {words}: {len(found):,} customers, {names}" if found else ""

    def _read(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        if not self._path.exists():
            return []
        with (
            contextlib.suppress(sqlite3.OperationalError),  # not built yet
            contextlib.closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as database,
        ):
            return database.execute(sql, values).fetchall()
        return []
