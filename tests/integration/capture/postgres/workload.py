"""Random statements: transactions, savepoints, rollbacks, large values, keys, truncates, columns."""

import random
from collections.abc import Callable

from headrace.capture.postgres.wire.connection import Connection, ServerError

TABLES = ("accounts", "notes", "pairs")
SETUP = (
    "CREATE TABLE accounts (id int PRIMARY KEY, name text, amount numeric(12,2), seen timestamptz)",
    "CREATE TABLE notes (id int PRIMARY KEY, big text, n int)",
    "ALTER TABLE notes ALTER big SET STORAGE EXTERNAL",
    "CREATE TABLE pairs (a int, b text, v jsonb, PRIMARY KEY (b, a))",
    "ALTER TABLE pairs REPLICA IDENTITY FULL",
)  # fmt: skip
_TEXTS = ("", "plain", 'q"uote', "back\\slash", "tab\tnl\n", "ünïcödé 漢字 😀", "it''s", "null", "{}")


class Workload:
    """Draws statements by a seed; those that a constraint refuses roll their transaction back."""

    def __init__(self, seed: int, keys: int = 60) -> None:
        self._chance = random.Random(seed)
        self._keys = keys
        self._columns = 0

    def transact(self, connection: Connection) -> None:
        """One transaction, of one to a few statements, or one that is rolled back."""
        chance = self._chance
        statements = [self._statement() for _ in range(chance.choice((1, 1, 2, 5, 20)))]
        if chance.random() < 0.2:
            statements.insert(chance.randrange(len(statements) + 1), "SAVEPOINT s")
            statements += [self._statement(), "ROLLBACK TO s", self._statement()]
        ending = "ROLLBACK" if chance.random() < 0.1 else "COMMIT"
        try:
            connection.query("; ".join(("BEGIN", *statements, ending)))
        except ServerError:
            connection.query("ROLLBACK")

    def _statement(self) -> str:
        draw: tuple[tuple[float, Callable[[], str]], ...] = (
            (30, self._upsert), (20, self._update), (12, self._delete), (8, self._rekey), (10, self._note),
            (12, self._pair), (0.5, self._truncate), (0.7, self._alter),
        )  # fmt: skip
        weights = [weight for weight, _ in draw]
        return self._chance.choices([each for _, each in draw], weights)[0]()

    def _key(self) -> int:
        return self._chance.randrange(self._keys)

    def _text(self) -> str:
        text = self._chance.choice(_TEXTS)
        return "E'" + text.replace("\\", "\\\\") + "'"

    def _upsert(self) -> str:
        return (
            f"INSERT INTO accounts VALUES ({self._key()}, {self._text()}, {self._key()}.5, now()) "
            "ON CONFLICT (id) DO UPDATE SET name = excluded.name, amount = accounts.amount + 1"
        )

    def _update(self) -> str:
        return f"UPDATE accounts SET name = {self._text()} WHERE id % 7 = {self._key() % 7}"

    def _delete(self) -> str:
        table = self._chance.choice(("accounts", "notes"))
        return f"DELETE FROM {table} WHERE id = {self._key()}"

    def _rekey(self) -> str:
        table, before, after = self._chance.choice(("accounts", "notes")), self._key(), self._key() + 1000
        return (
            f"UPDATE {table} SET id = {after} WHERE id = {before} "
            f"AND NOT EXISTS (SELECT 1 FROM {table} WHERE id = {after})"
        )

    def _note(self) -> str:
        if self._chance.random() < 0.5:
            return f"UPDATE notes SET n = n + 1 WHERE id % 5 = {self._key() % 5}"
        size = self._chance.choice((10, 3000, 9000))
        return (
            f"INSERT INTO notes VALUES ({self._key()}, repeat({self._text()}, {size}), 1) "
            "ON CONFLICT (id) DO UPDATE SET big = excluded.big"
        )

    def _pair(self) -> str:
        if self._chance.random() < 0.3:
            return f"DELETE FROM pairs WHERE a = {self._key() % 9}"
        return (
            f"INSERT INTO pairs VALUES ({self._key() % 9}, {self._text()}, '{{\"k\": [1, null]}}') "
            "ON CONFLICT (b, a) DO UPDATE SET v = pairs.v || '{\"more\": 1}'"
        )

    def _truncate(self) -> str:
        return self._chance.choice(("TRUNCATE pairs", "TRUNCATE accounts, pairs", "TRUNCATE notes"))

    def _alter(self) -> str:
        self._columns += 1
        number = self._columns
        return self._chance.choice(
            (
                f"ALTER TABLE accounts ADD c{number} int DEFAULT {number}",
                f"ALTER TABLE accounts RENAME name TO n{number}; "
                f"ALTER TABLE accounts RENAME n{number} TO name",
                "ALTER TABLE notes ALTER n TYPE bigint",
                "ALTER TABLE notes ALTER n TYPE int",
                f"ALTER TABLE pairs ADD d{number} text",
            )
        )
