"""What a capture needs in a PostgreSQL database: looked for, set up, or explained.

A publication names the tables, a slot keeps the log for us until we have acknowledged it.
`find_lacks` changes nothing; `Slot` and `ensure_publication` do.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headrace.capture.postgres.catalog import Table
from headrace.capture.postgres.wire import Connection, identifier, literal, parse_lsn
from headrace.capture.source import Lack

__all__ = [
    "OLDEST_VERSION",
    "Slot",
    "create_exporting_slot",
    "create_slot",
    "drop_publication",
    "drop_slot",
    "ensure_publication",
    "find_lacks",
    "find_slot",
    "published_tables",
]

OLDEST_VERSION = 13
_FAILOVER_VERSION = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A replication slot; `is_lost` if the log that it kept is gone."""

    plugin: str
    database: str
    confirmed_lsn: int
    is_active: bool
    is_lost: bool


def find_slot(connection: Connection, name: str) -> Slot | None:
    rows = connection.query(
        "SELECT plugin, database, confirmed_flush_lsn, active, wal_status FROM pg_replication_slots "
        f"WHERE slot_name = {literal(name)}"
    )
    if not rows:
        return None
    plugin, database, confirmed, active, status = rows[0]
    return Slot(
        plugin=plugin or "",
        database=database or "",
        confirmed_lsn=parse_lsn(confirmed or "0/0"),
        is_active=active == "t",
        is_lost=status == "lost" or confirmed is None,
    )


def create_slot(connection: Connection, name: str) -> int:
    """From which position on the new slot has every commit.

    Waits for the transactions that are in progress. Since version 17, standbys may keep it, too.
    """
    kept_by_standbys = ", false, false, true" if connection.server_version >= _FAILOVER_VERSION else ""
    created = f"pg_create_logical_replication_slot({literal(name)}, 'pgoutput'{kept_by_standbys})"
    return parse_lsn(connection.value(f"SELECT lsn FROM {created}"))


def create_exporting_slot(replication: Connection, name: str) -> tuple[int, str]:
    """The same, with a snapshot of the database at that position, which lasts until the next command here."""
    kept_by_standbys = replication.server_version >= _FAILOVER_VERSION
    options = "(SNAPSHOT 'export', FAILOVER)" if kept_by_standbys else "EXPORT_SNAPSHOT"
    (created,) = replication.query(f"CREATE_REPLICATION_SLOT {identifier(name)} LOGICAL pgoutput {options}")
    return parse_lsn(created[1] or ""), created[2] or ""


def drop_slot(connection: Connection, name: str) -> None:
    connection.query(f"SELECT pg_drop_replication_slot({literal(name)})")


def has_publication(connection: Connection, name: str) -> bool:
    return bool(connection.query(f"SELECT 1 FROM pg_publication WHERE pubname = {literal(name)}"))


def published_tables(connection: Connection, name: str) -> set[str]:
    rows = connection.query(
        f"SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = {literal(name)}"
    )
    return {row[0] or "" for row in rows}


def ensure_publication(connection: Connection, name: str, tables: Collection[Table]) -> set[str]:
    """Publishes these tables, and leaves others that are published; which were not until now."""
    if not has_publication(connection, name):
        connection.query(_creation(name, tables))
        return {each.full_name for each in tables}
    published = published_tables(connection, name)
    missing = [each for each in tables if each.full_name not in published]
    if missing:
        listed = ", ".join(each.quoted for each in missing)
        connection.query(f"ALTER PUBLICATION {identifier(name)} ADD TABLE {listed}")
    return {each.full_name for each in missing}


def drop_publication(connection: Connection, name: str) -> None:
    connection.query(f"DROP PUBLICATION IF EXISTS {identifier(name)}")


def _creation(name: str, tables: Collection[Table]) -> str:
    listed = ", ".join(each.quoted for each in tables)
    return (
        f"CREATE PUBLICATION {identifier(name)} FOR TABLE {listed} WITH (publish_via_partition_root = true)"
    )


# --- what is missing ------------------------------------------------------------------------------


def find_lacks(
    connection: Connection,
    *,
    wanted: Sequence[str],
    tables: Mapping[str, Table],
    slot: str,
    publication: str,
) -> list[Lack]:
    """What keeps a capture of these tables from starting, with the statements that help."""
    if connection.server_version < OLDEST_VERSION:
        version = connection.parameters.get("server_version", "?")
        return [Lack(what=f"PostgreSQL is {version}; {OLDEST_VERSION} is the oldest that can be captured")]
    if connection.value("SELECT pg_is_in_recovery()") == "t":
        return [Lack(what="this server is a standby; capture from the primary")]
    return [
        *_server_lacks(connection, slot),
        *_role_lacks(connection),
        *_table_lacks(connection, wanted, tables),
        *_publication_lacks(connection, publication, tables),
    ]


def _server_lacks(connection: Connection, slot: str) -> list[Lack]:
    lacks = []
    level = connection.value("SHOW wal_level")
    if level != "logical":
        lacks.append(
            Lack(
                what=f"wal_level is {level}; it must be logical, and the server restarted once",
                statements=("ALTER SYSTEM SET wal_level = 'logical'",),
            )
        )
    for setting, used, own in (
        ("max_replication_slots", "pg_replication_slots", f"WHERE slot_name <> {literal(slot)}"),
        ("max_wal_senders", "pg_stat_replication", "WHERE application_name <> 'headrace'"),
    ):
        most = int(connection.value(f"SHOW {setting}"))
        count = int(connection.value(f"SELECT count(*) FROM {used} {own}"))
        if count >= most:
            lacks.append(
                Lack(
                    what=f"all {most} of {setting} are in use; the server must be restarted to have more",
                    statements=(f"ALTER SYSTEM SET {setting} = {count + 5}",),
                )
            )
    return lacks


def _role_lacks(connection: Connection) -> list[Lack]:
    user = connection.value("SELECT current_user")
    allowed = connection.value(
        "SELECT rolreplication OR rolsuper OR EXISTS (SELECT 1 FROM pg_roles r WHERE r.rolname IN "
        "('rds_replication', 'rds_superuser') AND pg_has_role(r.oid, 'member')) "
        "FROM pg_roles WHERE rolname = current_user"
    )
    if allowed == "t":
        return []
    return [
        Lack(
            what=f"user {user} may not replicate",
            statements=(f"ALTER ROLE {identifier(user)} WITH REPLICATION",),
        )
    ]


def _table_lacks(connection: Connection, wanted: Sequence[str], tables: Mapping[str, Table]) -> list[Lack]:
    lacks = [
        Lack(what=f"there is no table {each}; tables are named schema.table, unquoted")
        for each in wanted
        if each not in tables
    ]
    if not wanted and not tables:
        lacks.append(Lack(what="the database has no tables with a primary key yet"))
    user = identifier(connection.value("SELECT current_user"))
    for table in tables.values():
        readable = connection.value(
            f"SELECT has_schema_privilege({literal(identifier(table.schema))}::regnamespace::oid, 'USAGE') "
            f"AND has_table_privilege({table.oid}, 'SELECT')"
        )
        if readable != "t":
            grants = (
                f"GRANT USAGE ON SCHEMA {identifier(table.schema)} TO {user}",
                f"GRANT SELECT ON {table.quoted} TO {user}",
            )
            lacks.append(Lack(what=f"table {table.full_name} may not be read", statements=grants))
        if not table.has_identity:
            lacks.append(
                Lack(
                    what=f"table {table.full_name} has no replica identity: with a publication, PostgreSQL "
                    "would refuse its updates and deletes; give it a primary key, or log whole rows",
                    statements=(f"ALTER TABLE {table.quoted} REPLICA IDENTITY FULL",),
                )
            )
    return lacks


def _publication_lacks(connection: Connection, publication: str, tables: Mapping[str, Table]) -> list[Lack]:
    if not tables:
        return []
    exists = has_publication(connection, publication)
    missing = set(tables) - (published_tables(connection, publication) if exists else set())
    if not missing or _may_publish(connection, [tables[each] for each in missing], exists, publication):
        return []
    chosen = [tables[each] for each in sorted(missing)]
    listed = ", ".join(each.quoted for each in chosen)
    statement = (
        f"ALTER PUBLICATION {identifier(publication)} ADD TABLE {listed}"
        if exists
        else _creation(publication, chosen)
    )
    what = f"publication {publication} does not have all tables, and this user may not change that"
    return [Lack(what=what, statements=(statement,))]


def _may_publish(connection: Connection, tables: Sequence[Table], exists: bool, publication: str) -> bool:
    """The owner of the tables may, if it owns the publication or may create one."""
    owner = (
        f"(SELECT pg_has_role(pubowner, 'member') FROM pg_publication WHERE pubname = {literal(publication)})"
        if exists
        else "has_database_privilege(current_database(), 'CREATE')"
    )
    oids = ", ".join(str(each.oid) for each in tables)
    allowed = connection.value(
        f"SELECT {owner} AND (SELECT bool_and(pg_has_role(relowner, 'member')) FROM pg_class "
        f"WHERE oid IN ({oids}))"
    )
    return allowed == "t"
