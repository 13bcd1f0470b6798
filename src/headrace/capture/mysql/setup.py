"""What a capture needs of a MySQL or MariaDB server: looked for and explained. Changes nothing."""

from collections.abc import Mapping, Sequence

from headrace.capture.mysql.catalog import Table
from headrace.capture.mysql.wire import Connection, ServerError, identifier, literal
from headrace.capture.source import Lack

__all__ = ["find_lacks", "setting_lacks"]

_OLDEST = {"MySQL": (8, 0), "MariaDB": (10, 6)}
_SETTINGS = {"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
_WHY = {
    "binlog_format": "the log must have rows, not statements",
    "binlog_row_image": "the log must have whole rows",
    "binlog_row_metadata": "the log must have the names of columns",
}
_DENIED = (1044, 1045, 1142, 1143, 1227)


def find_lacks(connection: Connection, *, wanted: Sequence[str], tables: Mapping[str, Table]) -> list[Lack]:
    """What keeps a capture of these tables from starting, with the statements that help."""
    oldest = _OLDEST[connection.product]
    if connection.greeting.release[:2] < oldest:
        said = ".".join(str(each) for each in oldest)
        version = connection.greeting.version
        return [Lack(what=f"{connection.product} is {version}; {said} is the oldest that can be captured")]
    if connection.variable("log_bin") != "ON":
        return [
            Lack(
                what="the server writes no binary log; add log_bin to the section [mysqld] of its "
                "configuration, and restart it once"
            )
        ]
    return [
        *setting_lacks(connection),
        *_user_lacks(connection),
        *_table_lacks(connection, wanted, tables),
    ]


def setting_lacks(connection: Connection) -> list[Lack]:
    """Settings of the server without which changes cannot be read."""
    scope = "GLOBAL" if connection.is_mariadb else "PERSIST"
    lacks = []
    for name, value in _SETTINGS.items():
        found = connection.variable(name)
        if found.upper() != value:
            lacks.append(
                Lack(
                    what=f"{name} is {found}; it must be {value}: {_WHY[name]}"
                    f"{' (also in the configuration, for the next start)' if connection.is_mariadb else ''}",
                    statements=(f"SET {scope} {name} = '{value}'",),
                )
            )
    return lacks if connection.is_mariadb else lacks + _mysql_lacks(connection)


def _mysql_lacks(connection: Connection) -> list[Lack]:
    lacks = []
    if connection.variable("binlog_row_value_options"):
        lacks.append(
            Lack(
                what="binlog_row_value_options logs parts of JSON values; it must be empty",
                statements=("SET PERSIST binlog_row_value_options = ''",),
            )
        )
    mode = connection.variable("gtid_mode")
    if mode != "ON":
        steps = ("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")
        left = steps[steps.index(mode) + 1 :] if mode in steps else steps[1:]
        lacks.append(
            Lack(
                what=f"gtid_mode is {mode}; it must be ON: transactions are told apart by their GTIDs",
                statements=(
                    "SET PERSIST enforce_gtid_consistency = 'ON'",
                    *(f"SET PERSIST gtid_mode = '{each}'" for each in left),
                ),
            )
        )
    return lacks


def _user_lacks(connection: Connection) -> list[Lack]:
    user = _current_user(connection)
    grants = " ".join(row[0] or "" for row in connection.query("SHOW GRANTS")).upper()
    everything = "ALL PRIVILEGES ON *.*" in grants
    lacks = []
    monitor = "BINLOG MONITOR" if connection.is_mariadb else "REPLICATION CLIENT"
    if not everything and "REPLICATION SLAVE" not in grants and not _has_roles(grants):
        lacks.append(
            Lack(
                what=f"user {user} may not read the binary log",
                statements=(f"GRANT REPLICATION SLAVE ON *.* TO {user}",),
            )
        )
    if not _is_allowed(connection, "SHOW BINARY LOGS"):
        lacks.append(
            Lack(
                what=f"user {user} may not see how far the binary log is",
                statements=(f"GRANT {monitor} ON *.* TO {user}",),
            )
        )
    return lacks


def _has_roles(grants: str) -> bool:
    """Whether privileges may come from roles, which are not listed: then the server decides."""
    return any(" ON " not in each for each in grants.split("GRANT ") if each.strip())


def _current_user(connection: Connection) -> str:
    name, _, host = connection.value("SELECT CURRENT_USER()").rpartition("@")
    return f"{identifier(name)}@{identifier(host)}"


def _is_allowed(connection: Connection, statement: str) -> bool:
    try:
        connection.query(statement)
    except ServerError as error:
        if error.number in _DENIED:
            return False
        raise
    return True


def _table_lacks(connection: Connection, wanted: Sequence[str], tables: Mapping[str, Table]) -> list[Lack]:
    user, database = _current_user(connection), connection.address.database
    if not connection.query(
        f"SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = {literal(database)}"
    ):
        return [
            Lack(
                what=f"there is no database {database}, or user {user} may not see it",
                statements=(f"GRANT SELECT ON {identifier(database)}.* TO {user}",),
            )
        ]
    lacks = [
        Lack(what=f"there is no table {each}, or user {user} may not see it; write it as SHOW TABLES does")
        for each in wanted
        if each not in tables
    ]
    if not wanted and not tables:
        lacks.append(Lack(what=f"the database {database} has no tables that user {user} may see"))
    for table in tables.values():
        if not _is_allowed(connection, f"SELECT * FROM {table.quoted} LIMIT 0"):
            lacks.append(
                Lack(
                    what=f"table {table.full_name} may not be read",
                    statements=(f"GRANT SELECT ON {table.quoted} TO {user}",),
                )
            )
        for column in table.columns:
            if column.kind is None:
                lacks.append(
                    Lack(
                        what=f"column {table.full_name}.{column.name} is {column.type_name}"
                        f"{f' in {column.charset}' if column.charset else ''}, which cannot be captured"
                    )
                )
    return lacks
