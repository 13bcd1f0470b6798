"""MySQL and MariaDB followed through their own protocol: rows and changes as they were."""

import threading
from dataclasses import replace

import pytest
from tests.integration.capture.mysql.databases import Database, Follower, followed
from tests.integration.capture.postgres.following import Folded

from headrace.capture import CaptureSpec, SourceChanged, open_source
from headrace.capture.mysql import MysqlAddress, MysqlSource
from headrace.capture.mysql.wire.connection import Connection, ServerError
from headrace.errors import ConfigError, RequestError, RetriableError
from headrace.testing.mysql_process import PASSWORD

pytestmark = pytest.mark.xdist_group("mysql")


def values(folded: Folded, table: str) -> list[dict]:
    return sorted(folded.tables.get(table, {}).values(), key=lambda row: str(row))


def ops(folded: Folded) -> str:
    return "".join(change.op for change in folded.log)


def test_rows_from_before_are_read_and_changes_follow(database):
    table = f"{database.name}.t"
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    folded = Folded()
    followed(database, folded)
    assert (ops(folded), values(folded, table)) == ("rr", [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    database.run("BEGIN", "UPDATE t SET v = 'c' WHERE id = 1", "DELETE FROM t WHERE id = 2", "COMMIT")
    database.run("UPDATE t SET id = 9 WHERE id = 1")
    followed(database, folded)
    assert (ops(folded)[2:], values(folded, table)) == ("uddc", [{"id": 9, "v": "c"}])
    update = folded.log[2]
    assert b'"gtid":' in update.source and b'"file":"binlog.' in update.source


# --- connecting -----------------------------------------------------------------------------------


def test_a_wrong_password_is_refused_and_not_repeated(database):
    with pytest.raises(ServerError) as refused:
        Connection(database.address, "hunter2")
    assert refused.value.number == 1045 and "hunter2" not in str(refused.value)


def test_a_password_is_proven_with_and_without_tls(database):
    """MySQL wants the password itself once, within TLS or for its key, and only a proof of it afterwards."""
    modes = ("disable", "disable", "prefer") if database.is_mariadb else ("disable", "disable", "require")
    for mode in (*modes, *reversed(modes)):
        if mode == modes[0] and not database.is_mariadb:
            database.run("FLUSH PRIVILEGES")  # and so it forgets what it was proven
        address = MysqlAddress.parse(database.server.url(database.name, sslmode=mode))
        with Connection(address, PASSWORD) as connection:
            assert connection.value("SELECT CURRENT_USER()") == "headrace@%"
    if database.is_mariadb:
        with pytest.raises(ConfigError, match="does not offer TLS"):
            Connection(MysqlAddress.parse(database.server.url(database.name, sslmode="require")), PASSWORD)
    else:
        with pytest.raises(ConfigError, match="certificate"):
            Connection(
                MysqlAddress.parse(database.server.url(database.name, sslmode="verify-full")), PASSWORD
            )


def test_a_server_that_is_not_there_may_be_tried_again():
    with pytest.raises(RetriableError, match="cannot be reached"):
        Connection(MysqlAddress.parse("mysql://ann@127.0.0.1:1/shop"))


def test_whatever_is_set_for_the_server_values_have_one_text(database):
    database.run(
        "SET GLOBAL sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'", "SET GLOBAL time_zone = '+09:00'"
    )
    try:
        with database.connect() as fresh:
            said = fresh.query("SELECT FROM_UNIXTIME(0), 'a\\'b', \"text\"")
    finally:
        database.run("SET GLOBAL sql_mode = DEFAULT", "SET GLOBAL time_zone = DEFAULT")
    assert said == [("1970-01-01 00:00:00", "a'b", "text")]


def test_a_url_is_all_it_takes_and_types_come_from_the_database(database):
    columns = "id bigint unsigned PRIMARY KEY, v varchar(9) NOT NULL, at timestamp(6) NULL, p point"
    database.run(f"CREATE TABLE t ({columns})")
    spec = CaptureSpec(name="shop", url=database.server.url(database.name), tables=("t",))
    source = open_source(spec)
    assert source.check() == []
    schema = source.describe()[f"{database.name}.t"]
    assert schema.spark_ddl == (
        "`id` decimal(20,0), `v` string, `at` timestamp, `p` struct<x:double,y:double,wkb:string,srid:int>"
    )
    assert (schema.key, [each.optional for each in schema.columns]) == (("id",), [False, False, True, True])


def test_check_names_what_is_missing_with_the_statements_that_help(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    database.run(f"CREATE USER poor_{database.name} IDENTIFIED BY '{PASSWORD}'")
    database.run(f"GRANT INSERT ON {database.name}.t TO poor_{database.name}")
    database.run("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    try:
        address = replace(database.address, user=f"poor_{database.name}")
        source = MysqlSource(address, PASSWORD, name="test", tables=["t", "missing"])
        lacks = source.check()
        statements = [each for lack in lacks for each in lack.statements]
        assert f"GRANT REPLICATION SLAVE ON *.* TO `poor_{database.name}`@`%`" in statements
        assert f"GRANT SELECT ON `{database.name}`.`t` TO `poor_{database.name}`@`%`" in statements
        assert any("missing" in lack.what for lack in lacks)
        with pytest.raises(ConfigError, match="not ready"):
            source.connect(None)
        for each in statements:
            database.run(each)
        left = MysqlSource(address, PASSWORD, name="test", tables=["t"])
        assert left.check() == []
        left.connect(None)
        left.close()
    finally:
        database.run("SET GLOBAL binlog_row_metadata = 'FULL'", f"DROP USER poor_{database.name}")


# --- following ------------------------------------------------------------------------------------


def test_what_was_rolled_back_is_never_seen(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    folded = Folded()
    followed(database, folded)
    database.run("BEGIN", "INSERT INTO t VALUES (1)", "ROLLBACK")
    database.run(
        "BEGIN", "INSERT INTO t VALUES (2)", "SAVEPOINT s", "INSERT INTO t VALUES (3)", "ROLLBACK TO s"
    )
    database.run("COMMIT")
    followed(database, folded)
    assert values(folded, f"{database.name}.t") == [{"id": 2}]


def test_a_truncated_table_is_empty(database):
    database.run("CREATE TABLE `odd ``t` (id int PRIMARY KEY)", "INSERT INTO `odd ``t` VALUES (1)")
    folded = Folded()
    followed(database, folded)
    database.run("/* note */ truncate table `odd ``t`", "INSERT INTO `odd ``t` VALUES (2)")
    followed(database, folded)
    assert ops(folded) == "rtc" and values(folded, f"{database.name}.odd `t") == [{"id": 2}]
    database.run(f"TRUNCATE {database.name}.`odd ``t`")
    followed(database, folded)
    assert values(folded, f"{database.name}.odd `t") == []


def test_only_the_captured_tables_are_followed(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other (id int PRIMARY KEY)")
    folded = Folded()
    followed(database, folded, tables=["t"])
    database.run(
        "BEGIN", "INSERT INTO other VALUES (1)", "INSERT INTO t VALUES (2)", "COMMIT", "TRUNCATE other"
    )
    followed(database, folded, tables=["t"])
    assert {change.table for change in folded.log} == {f"{database.name}.t"}
    assert values(folded, f"{database.name}.t") == [{"id": 2}]


def test_a_busy_neighbour_does_not_keep_the_reader_to_itself(database):
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other (id int PRIMARY KEY AUTO_INCREMENT)"
    )
    folded, source = Folded(), database.source(tables=["t"])
    follower = Follower(source, folded)
    follower.settle(database.end())
    stopping = threading.Event()

    def write() -> None:
        with database.connect() as connection:
            while not stopping.is_set():
                connection.query(f"INSERT INTO {database.name}.other VALUES ()")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            follower.round(0.02)  # it ends, though there is always more
    finally:
        stopping.set()
        writer.join(60)
    database.run("INSERT INTO t VALUES (1)")
    follower.settle(database.end())
    source.close()
    assert values(folded, f"{database.name}.t") == [{"id": 1}]


@pytest.mark.parametrize(
    ("types", "keys"),
    [
        (("varchar(9) COLLATE utf8mb4_general_ci",), [("a",), ("B",), ("ö ",), ("it''s",), ("z",)]),
        (("enum('z','a','m')",), [("z",), ("a",), ("m",)]),
        (("set('z','a','m')",), [("z",), ("a,m",), ("",)]),
        (("varbinary(4)",), [("\\0",), ("a",), ("b",), ("",)]),
        (("float",), [(0.1,), (0.2,), (-1e30,), (7,)]),
        (("double",), [(0.1,), (0.2,), (-1e300,)]),
        (("decimal(9,2)",), [(-1.5,), (0,), (10,)]),
        (("datetime(3)",), [("2026-01-01 00:00:00.001",), ("2026-01-01 00:00:00.002",)]),
        (("timestamp(6)",), [("2026-01-01 00:00:00.000001",), ("2026-01-01 00:00:00.000002",)]),
        (("time(2)",), [("-10:00:00",), ("00:00:00.25",), ("12:00:00",)]),
        (("bit(9)",), [(0,), (256,), (511,)]),
        (("int", "varchar(5)"), [(1, "a"), (1, "b"), (2, "a"), (0, "z")]),
        (("date", "bigint unsigned", "char(3)"),
         [("2026-01-01", 18446744073709551615, "b"), ("2026-01-01", 0, "c")]),
    ],
    ids=lambda each: "-".join(each) if isinstance(each[0], str) else "",
)  # fmt: skip
def test_a_key_of_any_type_is_read_chunk_by_chunk(database, types, keys):
    names = [f"k{place}" for place in range(len(types))]
    columns = ", ".join(f"{name} {kind} NOT NULL" for name, kind in zip(names, types, strict=True))
    database.run(f"CREATE TABLE t (v int, {columns}, PRIMARY KEY ({', '.join(reversed(names))}))")
    for number, key in enumerate(keys):
        said = ", ".join(f"'{each}'" if isinstance(each, str) else str(each) for each in key)
        database.run(f"INSERT INTO t VALUES ({number}, {said})")
    folded = Folded()
    followed(database, folded, chunk_rows=1)
    assert (ops(folded), len(folded.tables[f"{database.name}.t"])) == ("r" * len(keys), len(keys))
    database.run("UPDATE t SET v = v + 10")
    followed(database, folded)
    assert sorted(row["v"] for row in values(folded, f"{database.name}.t")) == [
        10 + n for n in range(len(keys))
    ]


@pytest.mark.slow
def test_rows_of_many_megabytes_are_read_in_small_chunks_and_arrive_whole(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v longtext)")
    for number in range(4):
        database.run(f"INSERT INTO t VALUES ({number}, repeat('x', 9000000))")
    folded, source = Folded(), database.source()
    follower = Follower(source, folded, chunk_rows=1000)
    first = source.read_chunk(f"{database.name}.t", None, 1000)
    assert 1 <= len(list(first.rows.rows())) <= 3 and first.cursor is not None
    follower.settle(database.end())
    database.run("INSERT INTO t VALUES (9, repeat('y', 15000000))")
    follower.settle(database.end())
    source.close()
    assert [len(row["v"]) for row in values(folded, f"{database.name}.t")] == [9000000] * 4 + [15000000]


def test_changes_of_a_table_without_a_key_come_without_one(database):
    database.run("CREATE TABLE t (v varchar(9))", "INSERT INTO t VALUES ('a')")
    folded = Folded()
    followed(database, folded)
    database.run("UPDATE t SET v = 'b'", "DELETE FROM t")
    followed(database, folded)
    assert [(each.op, each.key, each.before) for each in folded.log] == [
        ("u", None, b'{"v":"a"}'), ("d", None, b'{"v":"b"}'),
    ]  # fmt: skip


def test_compressed_logs_are_read(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    folded = Folded()
    followed(database, folded)
    if database.is_mariadb:
        database.run("SET GLOBAL log_bin_compress = ON")
    else:
        database.run("SET SESSION binlog_transaction_compression = ON")
    try:
        database.run(
            "INSERT INTO t VALUES (1, repeat('x', 9000)), (2, 'b')", "UPDATE t SET v = repeat('y', 999)"
        )
        database.run("DELETE FROM t WHERE id = 2", "ALTER TABLE t ADD c varchar(500) DEFAULT 'x'")
    finally:
        if database.is_mariadb:
            database.run("SET GLOBAL log_bin_compress = OFF")
    followed(database, folded)
    assert ops(folded)[:5] == "ccuud"
    assert values(folded, f"{database.name}.t") == [{"id": 1, "v": "y" * 999, "c": "x"}]


def test_generated_and_invisible_columns_are_captured(database):
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, n int, g int AS (n * 2) STORED, v int AS (n + 1) VIRTUAL, "
        "h int INVISIBLE DEFAULT 7)",
        "INSERT INTO t (id, n) VALUES (1, 5)",
    )
    folded = Folded()
    followed(database, folded)
    database.run("INSERT INTO t (id, n) VALUES (2, 6)")
    followed(database, folded)
    assert values(folded, f"{database.name}.t") == [
        {"id": 1, "n": 5, "g": 10, "v": 6, "h": 7}, {"id": 2, "n": 6, "g": 12, "v": 7, "h": 7},
    ]  # fmt: skip


# --- tables that change ---------------------------------------------------------------------------


def test_a_table_that_is_added_to_a_capture_is_read_once(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    database.run("INSERT INTO u VALUES (1)")
    folded = Folded()
    followed(database, folded, tables=["t"])
    followed(database, folded, tables=["t", "u"])
    assert values(folded, f"{database.name}.u") == [{"id": 1}] and folded.resnapshots == []


def test_a_table_that_is_created_is_found_where_all_are_captured(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    folded, source = Folded(), database.source()
    follower = Follower(source, folded)
    follower.settle(database.end())
    database.run("CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (1)")
    follower.settle(database.end())
    source.close()
    assert values(folded, f"{database.name}.u") == [{"id": 1}]


@pytest.mark.parametrize(
    ("statement", "again", "row"),
    [
        ("ALTER TABLE t ADD c int", False, {"id": 1, "v": "1", "c": None}),
        ("ALTER TABLE t ADD c int NOT NULL", True, {"id": 1, "v": "1", "c": 0}),
        ("ALTER TABLE t ADD c int DEFAULT 5", True, {"id": 1, "v": "1", "c": 5}),
        ("ALTER TABLE t RENAME COLUMN v TO w", True, {"id": 1, "w": "1"}),
        ("ALTER TABLE t MODIFY v int", True, {"id": 1, "v": 1}),
        ("ALTER TABLE t DROP COLUMN v", True, {"id": 1}),
        ("ALTER TABLE t ADD INDEX (v)", False, {"id": 1, "v": "1"}),
        ("ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 2", True, {"id": 1, "v": "1"}),
        ("CREATE TABLE t2 LIKE t", False, {"id": 1, "v": "1"}),
    ],
)
def test_a_change_of_columns_is_carried(database, statement, again, row):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v varchar(9))", "INSERT INTO t VALUES (1, '1')")
    folded, source = Folded(), database.source(tables=["t"])
    follower = Follower(source, folded)
    follower.settle(database.end())
    database.run("UPDATE t SET v = '1 ' WHERE id = 1", "UPDATE t SET v = '1'", statement)
    database.run("INSERT INTO t (id) VALUES (2)", "UPDATE t SET id = 3 WHERE id = 2")
    follower.settle(database.end())
    source.close()
    assert bool(folded.resnapshots) is again
    found = folded.tables[f"{database.name}.t"][b'{"id":1}']
    assert {name: found[name] for name in row if name in found or again} == (
        row if again else {name: value for name, value in row.items() if name in found}
    )
    newest = folded.tables[f"{database.name}.t"][b'{"id":3}']
    assert set(newest) == set(row)
    assert [each.name for each in folded.schemas[f"{database.name}.t"].columns] == list(row)


def test_rows_from_between_two_changes_that_cancel_out_are_read_again(database):
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(9), n int)", "INSERT INTO t VALUES (1, 'a', 1)"
    )
    folded = Folded()
    followed(database, folded)
    database.run("ALTER TABLE t RENAME COLUMN v TO w", "INSERT INTO t VALUES (2, 'b', 2)")
    database.run("ALTER TABLE t RENAME COLUMN w TO v", "ALTER TABLE t MODIFY n varchar(9)")
    database.run("INSERT INTO t VALUES (3, 'c', '3')", "ALTER TABLE t MODIFY n int")
    followed(database, folded)
    assert values(folded, f"{database.name}.t") == [
        {"id": 1, "v": "a", "n": 1}, {"id": 2, "v": "b", "n": 2}, {"id": 3, "v": "c", "n": 3},
    ]  # fmt: skip


def test_a_table_that_is_dropped_or_renamed_stops_the_capture(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    for tables, statement in ((["t"], "RENAME TABLE t TO t3"), ((), "DROP TABLE u")):
        folded, source = Folded(), database.source(tables=tables)
        follower = Follower(source, folded)
        follower.settle(database.end())
        database.run(statement)
        with pytest.raises(RequestError, match="is gone, or has another name"):
            follower.settle(database.end())
        source.close()


def test_a_table_that_was_dropped_and_made_anew_is_read_again(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    folded = Folded()
    followed(database, folded)
    database.run("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (2)")
    followed(database, folded)
    assert values(folded, f"{database.name}.t") == [{"id": 2}]


def test_what_a_foreign_key_does_to_rows_is_not_lost(database):
    database.run(
        "CREATE TABLE p (id int PRIMARY KEY)",
        "CREATE TABLE c (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES p (id) "
        "ON DELETE CASCADE ON UPDATE CASCADE)",
        "INSERT INTO p VALUES (1), (2), (3)",
        "INSERT INTO c VALUES (10, 1), (20, 2), (30, 3)",
    )
    folded = Folded()
    followed(database, folded, tables=["c"])
    database.run("DELETE FROM p WHERE id = 1", "UPDATE p SET id = 9 WHERE id = 2")
    followed(database, folded, tables=["c"])
    assert values(folded, f"{database.name}.c") == [{"id": 20, "p": 9}, {"id": 30, "p": 3}]


def test_a_statement_or_half_a_row_in_the_log_has_its_table_read_again(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    folded = Folded()
    followed(database, folded)
    for setting, value in (("binlog_row_image", "MINIMAL"), ("binlog_format", "STATEMENT")):
        with database.connect() as other:
            other.query(f"USE {database.name}")
            if setting == "binlog_format":
                other.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            other.query(f"SET SESSION {setting} = '{value}'")
            other.query("UPDATE t SET v = v + 1")
        followed(database, folded)
        assert folded.resnapshots[-1].skipped and setting in folded.resnapshots[-1].reason
    assert values(folded, f"{database.name}.t") == [{"id": 1, "v": 3}]


def test_an_xa_transaction_counts_once_it_is_committed(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    folded = Folded()
    followed(database, folded)
    with database.connect() as other:
        other.query(f"USE {database.name}")
        for each in ("XA START 'a b'", "INSERT INTO t VALUES (1)", "XA END 'a b'", "XA PREPARE 'a b'"):
            other.query(each)
        followed(database, folded)
        assert values(folded, f"{database.name}.t") == []
        other.query("XA COMMIT 'a b'")
        followed(database, folded)
        assert values(folded, f"{database.name}.t") == [{"id": 1}]
        for each in (
            "XA START 'c'",
            "INSERT INTO t VALUES (2)",
            "XA END 'c'",
            "XA PREPARE 'c'",
            "XA ROLLBACK 'c'",
        ):
            other.query(each)
        other.query("XA START 'd'")
        other.query("INSERT INTO t VALUES (3)")
        other.query("XA END 'd'")
        other.query("XA COMMIT 'd' ONE PHASE")
    followed(database, folded)
    assert values(folded, f"{database.name}.t") == [{"id": 1}, {"id": 3}]


# --- lost changes ---------------------------------------------------------------------------------


def purge(database: Database) -> None:
    """Removes all files of the log but the newest, once nobody reads them."""
    while len(files := database.run("SHOW BINARY LOGS")) > 1:
        database.run(f"PURGE BINARY LOGS TO '{files[-1][0]}'")


@pytest.mark.slow
def test_a_log_that_was_removed_before_it_was_read_is_noticed(own_server):
    with Database(own_server, "shop") as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        folded = Folded()
        followed(database, folded)
        database.run("FLUSH BINARY LOGS")
        purge(database)
        followed(database, folded)  # everything in it was read
        database.run("INSERT INTO t VALUES (1)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (2)")
        purge(database)
        with pytest.raises(SourceChanged, match="resnapshot test"):
            followed(database, folded)


@pytest.mark.slow
def test_another_server_in_its_place_is_noticed(own_server):
    folded = Folded()
    setup = ("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
    with Database(own_server, "shop") as database:
        database.run(*setup)
        followed(database, folded)
        database.disconnect()
        own_server.stop()
        own_server.replace()
        own_server.start()
    with Database(own_server, "shop") as database:
        database.run(*setup)
        with pytest.raises(SourceChanged, match="resnapshot test"):
            followed(database, folded)


@pytest.mark.slow
def test_a_restart_of_the_server_loses_nothing(own_server):
    with Database(own_server, "shop") as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        folded = Folded()
        followed(database, folded)
        database.disconnect()
        own_server.stop(hard=True)
        own_server.start()
        database.run(
            "CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (7)", "INSERT INTO t VALUES (2)"
        )
        followed(database, folded)
        assert values(folded, "shop.t") == [{"id": 1}, {"id": 2}] and values(folded, "shop.u") == [{"id": 7}]
