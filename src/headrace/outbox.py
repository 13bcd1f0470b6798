"""Events that an application writes in its own transaction, together with the rows they are about.

    with connection:                                    # sqlite3, psycopg, PyMySQL, SQLAlchemy, …
        connection.execute("UPDATE orders SET paid = 1 WHERE id = 7")
        outbox.write(connection, "order", 7, "OrderPaid", {"id": 7})

If the transaction is rolled back, so is the event; if it is committed, a capture with this
table as its outbox brings the event to the topic `outbox.event.order`, under the key `7`, once
and in order. The table has the columns of Debezium's outbox.
"""

import contextlib
import json
import uuid
from typing import Any

from headrace.errors import RequestError

__all__ = ["COLUMNS", "create_table", "write"]

_OF_MYSQL = ("pymysql", "MySQLdb", "mysql", "mariadb")
COLUMNS = ("id", "aggregatetype", "aggregateid", "type", "payload")


def create_table(connection: Any, table: str = "outbox") -> None:
    """Creates the table, if it is missing."""
    columns = "id VARCHAR(36) PRIMARY KEY NOT NULL, aggregatetype VARCHAR(255) NOT NULL, "
    columns += "aggregateid VARCHAR(255) NOT NULL, type VARCHAR(255) NOT NULL, payload "
    quote = _quote(connection)
    columns += "LONGTEXT) CHARACTER SET utf8mb4" if quote == "`" else "TEXT)"
    _execute(connection, f"CREATE TABLE IF NOT EXISTS {_quoted(table, quote)} ({columns}", {})


def write(
    connection: Any,
    aggregate_type: str,
    aggregate_id: object,
    type: str,  # noqa: A002 - as the column is called
    payload: Any,
    *,
    table: str = "outbox",
    id: str | None = None,  # noqa: A002 - as the column is called
) -> str:
    """Writes one event in the connection's transaction; its id, by which receivers know it again.

    `connection` is a connection, cursor or session of sqlite3, psycopg, SQLAlchemy, PyMySQL, mysqlclient,
    mysql-connector or mariadb. The payload is written as JSON, or as it is if it is text. The row
    may be deleted in the same transaction.
    """
    event = id or str(uuid.uuid4())
    text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    values = dict(zip(COLUMNS, (event, aggregate_type, str(aggregate_id), type, text), strict=True))
    names = ", ".join(COLUMNS)
    marks = ", ".join(f":{each}" for each in COLUMNS)
    name = _quoted(table, _quote(connection))
    _execute(connection, f"INSERT INTO {name} ({names}) VALUES ({marks})", values)  # noqa: S608
    return event


def _execute(connection: Any, statement: str, values: dict[str, Any]) -> None:
    """Executes a statement with named parameters in the way of its library."""
    library = _library(connection)
    if library == "sqlalchemy":
        from sqlalchemy import text

        connection.execute(text(statement), values)
    elif library in ("psycopg", *_OF_MYSQL):
        if values:
            statement = statement.replace("%", "%%")
        for name in values:
            statement = statement.replace(f":{name}", f"%({name})s")
        if hasattr(connection, "execute"):
            connection.execute(statement, values)
        else:
            with contextlib.closing(connection.cursor()) as cursor:
                cursor.execute(statement, values)
    else:
        connection.execute(statement, values)


def _library(connection: Any) -> str:
    names = {each.__module__.partition(".")[0] for each in type(connection).__mro__}
    found = names & {"sqlite3", "_sqlite3", "psycopg", "sqlalchemy", *_OF_MYSQL}
    if not found:
        raise RequestError(
            f"{type(connection).__name__} is no connection of sqlite3, psycopg, SQLAlchemy or a driver of "
            f"MySQL; insert the columns {', '.join(COLUMNS)} yourself"
        )
    return found.pop()


def _quote(connection: Any) -> str:
    """What stands around names in this database."""
    library = _library(connection)
    if library == "sqlalchemy":
        bind = connection.get_bind() if hasattr(connection, "get_bind") else connection
        return "`" if bind.dialect.name in ("mysql", "mariadb") else '"'
    return "`" if library in _OF_MYSQL else '"'


def _quoted(table: str, quote: str) -> str:
    return ".".join(quote + each.replace(quote, 2 * quote) + quote for each in table.split("."))
