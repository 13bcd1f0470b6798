"""The result in SQLite: totals per minute, and which micro-batches are in it."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from headrace.demo.orders import Totals

__all__ = ["MinuteTable"]

_TABLES = """
create table if not exists orders_per_minute (minute text primary key, orders integer, cents integer);
create table if not exists ledger (query_id text, batch_id integer, primary key (query_id, batch_id));
"""


class MinuteTable:
    """Rows and the micro-batch's identity go in together or not at all; a repeated batch changes nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(self._connect()) as database:
            database.executescript(_TABLES)

    def apply(self, query_id: str, batch_id: int, rows: Iterable[tuple[str, int, int]]) -> bool:
        """Replaces the totals of these minutes; False if that batch was applied before."""
        with closing(self._connect()) as database, database:
            ledger = "insert or ignore into ledger values (?, ?)"
            if database.execute(ledger, (query_id, batch_id)).rowcount == 0:
                return False
            database.executemany("insert or replace into orders_per_minute values (?, ?, ?)", rows)
        return True

    def minutes(self) -> dict[str, Totals]:
        """Everything in the table, by minute."""
        with closing(self._connect()) as database:
            rows = database.execute("select minute, orders, cents from orders_per_minute order by minute")
            return {minute: Totals(orders, cents) for minute, orders, cents in rows}

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=30)
