"""The databases that Debezium's connectors read, and which of their settings may be given. Pure.

What a capture promises depends on the other settings: names of topics, the forms of values, where positions
are kept. So does what a declaration can do to the machine that runs it: a setting that names a class or a
file to write is not among them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.errors import ConfigError
from headrace.secret_references import is_reference

__all__ = ["DATABASES", "SECRETS", "Database", "check_settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A kind of database. `schema` is that of a table which is named without one.

    `tables` is the connector's list of what to read; with `has_history` it keeps the statements that changed
    tables in a topic; `is_once` says that Connect can write its records and position in one transaction.
    `driver` and `jdbc` are for looking at tables, where no reader of ours can.
    """

    title: str
    connector: str
    port: int
    keys: frozenset[str]
    schema: str = ""
    tables: str = "table.include.list"
    has_history: bool = True
    is_once: bool = True
    driver: str = ""
    jdbc: str = ""


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


_EVERY = _keys("""
    errors.max.retries event.processing.failure.handling.mode guardrail.collections.limit.action
    guardrail.collections.max heartbeat.interval.ms max.batch.size max.queue.size max.queue.size.in.bytes
    poll.interval.ms provide.transaction.metadata retriable.restart.connector.wait.ms signal.data.collection
    signal.poll.interval.ms skipped.operations snapshot.delay.ms snapshot.fetch.size
    snapshot.include.collection.list snapshot.mode streaming.delay.ms
""")
_RELATIONAL = _EVERY | _keys("""
    column.exclude.list column.include.list message.key.columns snapshot.lock.timeout.ms
    snapshot.tables.order.by.row.count table.exclude.list
""")
_HISTORY = _keys("schema.history.internal.skip.unparseable.ddl")
_BINLOG = (
    _RELATIONAL
    | _HISTORY
    | _keys("""
    binlog.buffer.size connect.keep.alive connect.keep.alive.interval.ms connect.timeout.ms
    database.query.timeout.ms database.server.id database.ssl.keystore database.ssl.keystore.password
    database.ssl.mode database.ssl.truststore database.ssl.truststore.password
    event.deserialization.failure.handling.mode gtid.source.excludes gtid.source.includes
    heartbeat.action.query include.query inconsistent.schema.handling.mode incremental.snapshot.chunk.size
    query.fetch.size snapshot.locking.mode snapshot.max.threads
""")
)
DATABASES: Mapping[str, Database] = {
    "sqlserver": Database(
        title="SQL Server",
        connector="io.debezium.connector.sqlserver.SqlServerConnector",
        port=1433,
        schema="dbo",
        driver="com.microsoft.sqlserver.jdbc.SQLServerDriver",
        jdbc="jdbc:sqlserver://{host}:{port};databaseName={{{name}}}",
        keys=_RELATIONAL
        | _HISTORY
        | _keys("""
            data.query.mode database.applicationIntent database.encrypt database.hostNameInCertificate
            database.instance database.query.timeout.ms database.trustServerCertificate database.trustStore
            database.trustStorePassword heartbeat.action.query incremental.snapshot.chunk.size
            incremental.snapshot.option.recompile max.iteration.transactions snapshot.isolation.mode
            snapshot.max.threads streaming.fetch.size
        """),
    ),
    "oracle": Database(
        title="Oracle",
        connector="io.debezium.connector.oracle.OracleConnector",
        port=1521,
        schema="{user}",
        driver="oracle.jdbc.OracleDriver",
        jdbc="jdbc:oracle:thin:@//{host}:{port}/{name}",
        keys=_RELATIONAL
        | _HISTORY
        | _keys("""
            archive.destination.name archive.log.hours database.connection.adapter database.out.server.name
            database.pdb.name database.query.timeout.ms heartbeat.action.query interval.handling.mode
            lob.enabled log.mining.archive.log.only.mode log.mining.buffer.transaction.events.threshold
            log.mining.flush.table.name log.mining.query.filter.mode log.mining.read.only
            log.mining.restart.connection log.mining.session.max.ms log.mining.strategy
            log.mining.transaction.retention.ms log.mining.username.exclude.list
            log.mining.username.include.list query.fetch.size rac.nodes snapshot.database.errors.max.retries
            snapshot.locking.mode snapshot.max.threads unavailable.value.placeholder
        """),
    ),
    "db2": Database(
        title="Db2",
        connector="io.debezium.connector.db2.Db2Connector",
        port=50000,
        schema="{user}",
        is_once=False,
        driver="com.ibm.db2.jcc.DB2Driver",
        jdbc="jdbc:db2://{host}:{port}/{name}",
        keys=_RELATIONAL
        | _HISTORY
        | _keys("""
            cdc.change.tables.schema cdc.control.schema database.sslConnection
            database.sslTrustStoreLocation database.sslTrustStorePassword db2.platform
            incremental.snapshot.chunk.size query.fetch.size
        """),
    ),
    "mongodb": Database(
        title="MongoDB",
        connector="io.debezium.connector.mongodb.MongoDbConnector",
        port=27017,
        schema="{database}",
        tables="collection.include.list",
        has_history=False,
        keys=_EVERY
        | _keys("""
            capture.mode collection.exclude.list cursor.max.await.time.ms field.exclude.list
            mongodb.authsource mongodb.connect.timeout.ms mongodb.heartbeat.frequency.ms
            mongodb.poll.interval.ms mongodb.server.selection.timeout.ms mongodb.socket.timeout.ms
            mongodb.ssl.enabled mongodb.ssl.invalid.hostname.allowed query.fetch.size
            snapshot.collection.filter.overrides snapshot.max.threads
        """),
    ),
    "postgresql": Database(
        title="PostgreSQL",
        connector="io.debezium.connector.postgresql.PostgresConnector",
        port=5432,
        schema="public",
        has_history=False,
        keys=_RELATIONAL
        | _keys("""
            database.query.timeout.ms database.sslcert database.sslkey database.sslmode database.sslpassword
            database.sslrootcert database.tcpKeepAlive flush.lsn.source heartbeat.action.query
            hstore.handling.mode include.unknown.datatypes incremental.snapshot.chunk.size
            interval.handling.mode lsn.flush.mode message.prefix.exclude.list message.prefix.include.list
            publish.via.partition.root query.fetch.size schema.refresh.mode slot.failover slot.max.retries
            slot.retry.delay.ms slot.stream.params snapshot.isolation.mode snapshot.locking.mode
            snapshot.max.threads status.update.interval.ms unavailable.value.placeholder
            xmin.fetch.interval.ms
        """),
    ),
    "mysql": Database(
        title="MySQL",
        connector="io.debezium.connector.mysql.MySqlConnector",
        port=3306,
        schema="{database}",
        keys=_BINLOG,
    ),
    "mariadb": Database(
        title="MariaDB",
        connector="io.debezium.connector.mariadb.MariaDbConnector",
        port=3306,
        schema="{database}",
        keys=_BINLOG,
    ),
}

# Settings that are secrets: given as env:NAME or file:PATH only.
SECRETS = _keys("""
    database.ssl.keystore.password database.ssl.truststore.password database.sslTrustStorePassword
    database.sslpassword database.trustStorePassword
""")
# Of columns that are in the middle of their names.
_PATTERNS = (
    re.compile(r"column\.mask\.with\.[0-9]+\.chars"),
    re.compile(r"column\.truncate\.to\.[0-9]+\.chars"),
)


def check_settings(kind: str, settings: Mapping[str, str]) -> None:
    """Raises ConfigError for a setting that may not be given, or a secret that is not a reference."""
    allowed = DATABASES[kind].keys
    refused = sorted(
        each
        for each in settings
        if each not in allowed and not any(pattern.fullmatch(each) for pattern in _PATTERNS)
    )
    if refused:
        raise ConfigError(
            f"{', '.join(refused)}: not a setting of Debezium's connector for {DATABASES[kind].title} that a "
            f"capture may be given. These are: {', '.join(sorted(allowed))}"
        )
    for each in sorted(SECRETS & set(settings)):
        if not is_reference(settings[each]):
            raise ConfigError(f"{each} says where the secret is, env:NAME or file:PATH, not what it is")
    open_ends = sorted(each for each, value in settings.items() if "${" in value)
    if open_ends:
        raise ConfigError(
            f"{', '.join(open_ends)}: a value with ${{…}} would be replaced by Connect; refused"
        )
