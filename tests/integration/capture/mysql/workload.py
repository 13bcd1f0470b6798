"""Random statements: transactions, savepoints, rollbacks, large values, keys, truncates, columns."""

import random
from collections.abc import Callable

from headrace.capture.mysql.wire.connection import Connection, ServerError

TABLES = ("accounts", "notes", "pairs")
SETUP = (
    "CREATE TABLE accounts (id int PRIMARY KEY, name varchar(90) CHARACTER SET utf8mb4, "
    "amount decimal(12,2), seen timestamp(3) NULL)",
    "CREATE TABLE notes (id int PRIMARY KEY, big longtext CHARACTER SET utf8mb4, n int)",
    "CREATE TABLE pairs (a int, b varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, v json, "
    "PRIMARY KEY (b, a))",
    "INSERT INTO accounts (id, name, amount) WITH RECURSIVE g (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g "
    "WHERE n < 60) SELECT n, concat('old', n), n FROM g",
)  # fmt: skip
_TEXTS = (
    "",
    "plain",
    'q"uote',
    "back\\\\slash",
    "tab\\tnl\\n",
    "ünïcödé 漢字 😀",
    "it''s",
    "null",
    "{}",
    "PLAIN",
)


class Workload:
    """Draws statements by a seed; those that a constraint refuses roll their transaction back."""

    def __init__(self, seed: int, keys: int = 60) -> None:
        self._chance = random.Random(seed)
        self._keys = keys
        self._columns = 0

    def transact(self, connection: Connection) -> None:
        """One transaction, of one to a few statements, or one that is rolled back."""
        chance = self._chance
        if chance.random() < 0.02:
            self._alone(connection)
            return
        statements = [self._statement() for _ in range(chance.choice((1, 1, 2, 5, 20)))]
        if chance.random() < 0.2:
            statements.insert(chance.randrange(len(statements) + 1), "SAVEPOINT s")
            statements += [self._statement(), "ROLLBACK TO s", self._statement()]
        ending = "ROLLBACK" if chance.random() < 0.1 else "COMMIT"
        try:
            for each in ("BEGIN", *statements, ending):
                connection.query(each)
        except ServerError:
            connection.query("ROLLBACK")

    def _alone(self, connection: Connection) -> None:
        """A statement that is a transaction of its own."""
        self._columns += 1
        number = self._columns
        statement = self._chance.choice(
            (
                f"ALTER TABLE accounts ADD c{number} int DEFAULT {number}",
                "TRUNCATE pairs", "TRUNCATE notes",
                "ALTER TABLE notes MODIFY n bigint", "ALTER TABLE notes MODIFY n int",
                f"ALTER TABLE pairs ADD d{number} varchar(9)", "FLUSH BINARY LOGS",
                "ALTER TABLE accounts RENAME COLUMN name TO naam",
                "ALTER TABLE accounts RENAME COLUMN naam TO name",
            )
        )  # fmt: skip
        try:
            connection.query(statement)
        except ServerError:
            connection.query("ROLLBACK")

    def _statement(self) -> str:
        draw: tuple[tuple[float, Callable[[], str]], ...] = (
            (30, self._upsert), (20, self._update), (12, self._delete), (8, self._rekey), (10, self._note),
            (12, self._pair),
        )  # fmt: skip
        weights = [weight for weight, _ in draw]
        return self._chance.choices([each for _, each in draw], weights)[0]()

    def _key(self) -> int:
        return self._chance.randrange(self._keys)

    def _text(self) -> str:
        return f"'{self._chance.choice(_TEXTS)}'"

    def _upsert(self) -> str:
        if self._chance.random() < 0.3:
            return f"REPLACE INTO accounts (id, amount) VALUES ({self._key()}, {self._key()})"
        return (
            f"INSERT INTO accounts (id, amount, seen) VALUES ({self._key()}, {self._key()}.5, now(3)) "
            "ON DUPLICATE KEY UPDATE amount = amount + 1"
        )

    def _update(self) -> str:
        return f"UPDATE accounts SET name = {self._text()} WHERE id % 7 = {self._key() % 7}"

    def _delete(self) -> str:
        table = self._chance.choice(("accounts", "notes"))
        return f"DELETE FROM {table} WHERE id = {self._key()}"

    def _rekey(self) -> str:
        table = self._chance.choice(("accounts", "notes"))
        return f"UPDATE IGNORE {table} SET id = {self._key() + 1000} WHERE id = {self._key()}"

    def _note(self) -> str:
        if self._chance.random() < 0.5:
            return f"UPDATE notes SET n = n + 1 WHERE id % 5 = {self._key() % 5}"
        size = self._chance.choice((10, 3000, 9000))
        return f"REPLACE INTO notes VALUES ({self._key()}, repeat({self._text()}, {size}), 1)"

    def _pair(self) -> str:
        if self._chance.random() < 0.3:
            return f"DELETE FROM pairs WHERE a = {self._key() % 9}"
        return (
            f"INSERT INTO pairs (a, b, v) VALUES ({self._key() % 9}, {self._text()}, '{{\"k\": [1, null]}}') "
            "ON DUPLICATE KEY UPDATE v = json_set(v, '$.more', 1), b = upper(b)"
        )
