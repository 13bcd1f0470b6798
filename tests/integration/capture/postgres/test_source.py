"""PostgreSQL followed through its own protocol: rows and changes as they were, whatever happens between."""

import orjson
import pytest
from tests.integration.capture.conftest import wait_until
from tests.integration.capture.postgres.databases import Database
from tests.integration.capture.postgres.following import Folded, Follower

from headrace.capture import CaptureSpec, SourceChanged, one_by_one, open_source
from headrace.capture.postgres import PostgresAddress, PostgresSource
from headrace.capture.postgres.wire.connection import Connection, ServerError
from headrace.errors import ConfigError, HeadraceError, RequestError, RetriableError
from headrace.testing.postgres_process import PASSWORD

pytestmark = pytest.mark.xdist_group("postgres")

TABLE = "public.t"


def followed(database: Database, folded: Folded, **options) -> None:
    """Follows to the end of what there is, and lets go."""
    source = database.source(**options)
    try:
        Follower(source, folded).settle(database.end())
    finally:
        source.close()


def values(folded: Folded, table: str = TABLE) -> list[dict]:
    return sorted(folded.tables.get(table, {}).values(), key=lambda row: str(row))


def ops(folded: Folded) -> str:
    return "".join(change.op for change in folded.log)


# --- connecting -----------------------------------------------------------------------------------


def test_a_wrong_password_is_refused_and_not_repeated(database):
    with pytest.raises(ServerError) as refused:
        Connection(database.address, "hunter2")
    assert refused.value.sqlstate == "28P01" and "hunter2" not in str(refused.value)


def test_a_server_without_tls_is_refused_where_tls_is_asked_for(server):
    for mode in ("require", "verify-full"):
        with pytest.raises(ConfigError, match="does not offer TLS"):
            Connection(PostgresAddress.parse(server.url(sslmode=mode)), PASSWORD)


def test_a_server_that_is_not_there_may_be_tried_again():
    with pytest.raises(RetriableError, match="cannot be reached"):
        Connection(PostgresAddress.parse("postgresql://ann@127.0.0.1:1/shop"))


def test_whatever_is_set_for_the_role_values_have_one_text(database):
    settings = ("DateStyle = 'SQL, DMY'", "TimeZone = 'Asia/Tokyo'", "bytea_output = 'escape'",
                "extra_float_digits = -5", "IntervalStyle = 'iso_8601'", "lc_monetary = 'C'")  # fmt: skip
    for each in settings:
        database.run(f"ALTER DATABASE {database.name} SET {each}")
    database.disconnect()
    said = database.run(
        "SELECT '2026-01-02 03:04:05+00'::timestamptz, '\\x00ff'::bytea, 0.1::float8 + 0.2::float8, "
        "'1 day'::interval, '-1234.5'::money"
    )
    assert said == [("2026-01-02 03:04:05+00", "\\x00ff", "0.30000000000000004", "1 day", "-$1,234.50")]


def test_a_url_is_all_it_takes_and_types_come_from_the_database(database):
    database.run("CREATE TABLE t (id bigint PRIMARY KEY, v text NOT NULL, at timestamptz, tags text[])")
    spec = CaptureSpec(name="shop", url=database.server.url(database.name), tables=("t",))
    source = open_source(spec)
    assert source.check() == []
    schema = source.describe()[TABLE]
    assert schema.spark_ddl == "`id` bigint, `v` string, `at` timestamp, `tags` array<string>"
    assert (schema.key, [each.optional for each in schema.columns]) == (("id",), [False, False, True, True])


# --- following ------------------------------------------------------------------------------------


def test_rows_from_before_are_read_and_changes_follow(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    folded = Folded()
    followed(database, folded)
    assert (ops(folded), values(folded)) == ("rr", [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    database.run("BEGIN; UPDATE t SET v = 'c' WHERE id = 1; DELETE FROM t WHERE id = 2; COMMIT")
    database.run("UPDATE t SET id = 9 WHERE id = 1")
    followed(database, folded)
    assert (ops(folded)[2:], values(folded)) == ("uddc", [{"id": 9, "v": "c"}])
    update = folded.log[2]
    assert b'"txId":' in update.source and b'"lsn":' in update.source


def test_small_transactions_that_have_arrived_are_read_at_once(database):
    """The server puts a keepalive behind each of them, until the last one is acknowledged."""
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    source = database.source()
    source.connect(None)
    list(source.transactions(0))
    sent = "SELECT sent_lsn >= pg_current_wal_lsn() FROM pg_stat_replication"
    for number in range(30):
        database.run(f"INSERT INTO t VALUES ({number})")
        wait_until(lambda: database.run(sent) == [("t",)])
    keys = [item.key for each in source.transactions(5) for item in one_by_one(each.changes)]
    source.close()
    assert len(keys) == 30


def test_a_truncated_table_is_empty(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY REFERENCES t)")
    database.run("INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (1)")
    folded = Folded()
    followed(database, folded)
    database.run("TRUNCATE t CASCADE", "INSERT INTO t VALUES (2)")
    followed(database, folded)
    assert (values(folded), values(folded, "public.u")) == ([{"id": 2}], [])


def test_what_was_rolled_back_is_never_seen(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    folded = Folded()
    followed(database, folded)
    database.run("BEGIN; INSERT INTO t VALUES (1); ROLLBACK")
    database.run(
        "BEGIN; INSERT INTO t VALUES (2); SAVEPOINT s; INSERT INTO t VALUES (3); ROLLBACK TO s; COMMIT"
    )
    followed(database, folded)
    assert values(folded) == [{"id": 2}]


def test_only_the_captured_tables_are_followed(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE other (id int PRIMARY KEY)")
    database.run("CREATE PUBLICATION everything FOR ALL TABLES")
    folded = Folded()
    followed(database, folded, tables=["t"], publication="everything")
    database.run("BEGIN; INSERT INTO other VALUES (1); INSERT INTO t VALUES (2); COMMIT")
    database.run("TRUNCATE other")
    followed(database, folded, tables=["t"], publication="everything")
    assert {change.table for change in folded.log} == {TABLE} and values(folded) == [{"id": 2}]


def test_names_with_any_letters_are_captured(database):
    database.run(
        'CREATE SCHEMA "Odd \'one"', 'CREATE TABLE "Odd \'one"."a ""table" ("the.key" text PRIMARY KEY)'
    )
    database.run('INSERT INTO "Odd \'one"."a ""table" VALUES (\'it\'\'s \\ "odd"\'), (\'x\')')
    folded = Folded()
    source = database.source(tables=["Odd 'one.a \"table"])
    Follower(source, folded, chunk_rows=1).settle(database.end())
    source.close()
    assert [row["the.key"] for row in values(folded, "Odd 'one.a \"table")] == ['it\'s \\ "odd"', "x"]


def test_a_key_of_several_columns_in_another_order_is_read_chunk_by_chunk(database):
    database.run("CREATE TABLE t (a text, v int, b timestamptz, PRIMARY KEY (b, a))")
    database.run(
        "INSERT INTO t SELECT 'k' || g % 7, g, '2026-01-01'::timestamptz + g / 7 * interval '1 day' "
        "FROM generate_series(1, 100) g"
    )
    folded, source = Folded(), database.source()
    Follower(source, folded, chunk_rows=9).settle(database.end())
    source.close()
    assert sorted(row["v"] for row in values(folded)) == list(range(1, 101))
    assert list(orjson.loads(folded.log[0].key or b"")) == ["a", "b"]
    assert ops(folded) == "r" * 100


def test_rows_of_many_megabytes_are_read_in_small_chunks(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.run("INSERT INTO t SELECT g, repeat('x', 6000000) FROM generate_series(1, 8) g")
    folded, source = Folded(), database.source()
    follower = Follower(source, folded, chunk_rows=1000)
    first = source.read_chunk(TABLE, None, 1000)
    assert 1 <= len(list(first.rows.rows())) <= 4 and first.cursor is not None
    follower.settle(database.end())
    source.close()
    assert len(values(folded)) == 8


def test_large_values_that_did_not_change_are_kept(database):
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, n int, big text)",
        "ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
        "INSERT INTO t VALUES (1, 1, repeat('x', 9000))",
    )
    folded = Folded()
    followed(database, folded)
    database.run("UPDATE t SET n = 2")
    followed(database, folded)
    assert folded.log[-1].unchanged == ("big",)
    database.run("ALTER TABLE t REPLICA IDENTITY FULL", "UPDATE t SET n = 3")
    followed(database, folded)
    assert folded.log[-1].unchanged == () and b'"n":2' in (folded.log[-1].before or b"")
    assert values(folded) == [{"id": 1, "n": 3, "big": "x" * 9000}]


def test_a_partitioned_table_is_one_table(database):
    database.run(
        "CREATE TABLE t (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (20)",
        "INSERT INTO t VALUES (1, 'a'), (11, 'b')",
    )
    folded = Folded()
    followed(database, folded)
    database.run("UPDATE t SET id = 12 WHERE id = 1")
    followed(database, folded)
    assert list(folded.tables) == [TABLE]
    assert values(folded) == [{"id": 11, "v": "b"}, {"id": 12, "v": "a"}]


def test_rows_of_a_table_that_inherits_are_its_own(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (PRIMARY KEY (id)) INHERITS (t)")
    database.run("INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (2)")
    folded = Folded()
    followed(database, folded)
    database.run("INSERT INTO u VALUES (3)")
    followed(database, folded)
    assert (values(folded), values(folded, "public.u")) == ([{"id": 1}], [{"id": 2}, {"id": 3}])


def test_a_table_that_is_added_to_a_capture_is_read_once(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    database.run("INSERT INTO u VALUES (1)")
    folded = Folded()
    followed(database, folded, tables=["t"])
    followed(database, folded, tables=["t", "u"])
    assert values(folded, "public.u") == [{"id": 1}] and folded.resnapshots == []


def test_changes_of_a_table_without_a_key_come_without_one(database):
    database.run(
        "CREATE TABLE t (v text)", "ALTER TABLE t REPLICA IDENTITY FULL", "INSERT INTO t VALUES ('a')"
    )
    folded = Folded()
    followed(database, folded, tables=["t"])
    database.run("UPDATE t SET v = 'b'", "DELETE FROM t")
    followed(database, folded)
    assert [(each.op, each.key, each.before) for each in folded.log] == [
        ("u", None, b'{"v":"a"}'), ("d", None, b'{"v":"b"}'),
    ]  # fmt: skip


ZOO = {
    "b": ("boolean", "true"), "i2": ("smallint", "-5"), "i8": ("bigint", "9223372036854775807"),
    "o": ("oid", "42"), "f4": ("real", "1e30"), "f8": ("double precision", "'NaN'"),
    "n": ("numeric", "1e10"), "n2": ("numeric(12,2)", "1.5"), "mo": ("money", "'-$1,234.56'"),
    "te": ("text", "e'tab\\t\"q\" ü \\\\'"), "vc": ("varchar(9)", "'x'"), "ch": ("char(5)", "'é'"),
    "ts": ("timestamp", "'2026-01-02 03:04:05.678'"), "ts3": ("timestamp(3)", "'infinity'"),
    "tz": ("timestamptz", "'0044-03-15 10:00:00+05:30 BC'"), "da": ("date", "'-infinity'"),
    "ti": ("time", "'24:00:00'"), "tt": ("timetz", "'12:34:56.5+02'"),
    "iv": ("interval", "'1 year 2 mons -3 days 04:05:06.7'"), "by": ("bytea", "'\\x00ff'"),
    "uu": ("uuid", "'a0eebc999c0b4ef8bb6d6bb9bd380a11'"), "js": ("json", "'{\"a\" : 1}'"),
    "jb": ("jsonb", "'{\"b\":[1,2.50]}'"), "xm": ("xml", "'<a/>'"), "ip": ("inet", "'10.0.0.0/8'"),
    "ci": ("cidr", "'10.1.0.0/16'"), "ma": ("macaddr", "'08:00:2b:01:02:03'"), "bi": ("bit(5)", "B'10101'"),
    "b1": ("bit(1)", "B'1'"), "vb": ("varbit", "B'101'"), "ra": ("int4range", "'[1,5)'"),
    "tr": ("tstzrange", "'[2026-01-01,2026-02-01)'"), "po": ("point", "'(1.5,-2)'"),
    "bo": ("box", "'(2,2),(1,1)'"), "ci2": ("circle", "'<(1,2),3>'"), "tv": ("tsvector", "'a fat cat'"),
    "tq": ("tsquery", "'fat & rat'"), "ls": ("pg_lsn", "'16/B374D848'"), "en": ("mood", "'it''s \"odd\"'"),
    "dm": ("posint", "7"), "co": ("pair", "row(1,'x')"),
    "ta": ("text[]", "array['a','b c','q\"x','null',NULL,'','back\\slash']"),
    "na": ("numeric[]", "'{1.50,NaN,NULL}'"), "ma2": ("int[][]", "'{{1,2},{3,4}}'"),
    "ea": ("mood[]", "'{sad}'"), "da2": ("date[]", "'{2026-01-01,1969-12-31}'"),
    "ba": ("box[]", "'{(2,2),(1,1);(4,4),(3,3)}'"), "dma": ("posint[]", "'{1,2}'"),
    "hs": ("hstore", "'a=>1,b=>NULL'"), "ia": ("int[]", "'{1,NULL}'"),
}  # fmt: skip


def test_a_value_of_any_type_is_the_same_in_a_snapshot_and_in_a_change(database):
    database.run(
        "CREATE TYPE mood AS ENUM ('sad', 'it''s \"odd\"')", "CREATE DOMAIN posint AS int CHECK (value > 0)",
        "CREATE TYPE pair AS (a int, b text)",
    )  # fmt: skip
    zoo = dict(ZOO)
    if not database.run("SELECT 1 FROM pg_available_extensions WHERE name = 'hstore'"):
        del zoo["hs"]
    else:
        database.run("CREATE EXTENSION hstore")
    if not database.run(
        "SELECT 1 FROM pg_proc WHERE proname = 'xmlcomment' AND prosrc <> ''"
    ) or not _has_xml(database):
        del zoo["xm"]
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in zoo.items())
    database.run(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    insert = f"INSERT INTO t VALUES (%s, {', '.join(value for _, value in zoo.values())})"
    database.run(insert % 1, "INSERT INTO t (id) VALUES (3)")
    folded = Folded()
    followed(database, folded)
    database.run(insert % 2, "INSERT INTO t (id) VALUES (4)")
    followed(database, folded)
    by_id = {row["id"]: {**row, "id": 0} for row in values(folded)}
    assert by_id[1] == by_id[2] and by_id[3] == by_id[4]
    assert set(by_id[3].values()) == {0, None}
    one = by_id[1]
    assert (one["n"], one["mo"], one["tz"]) == ("10000000000", "-1234.56", "-0043-03-15T04:30:00.000000Z")
    assert (one["bi"], one["b1"], one["ma2"], one["dma"]) == ("FQ==", True, [[1, 2], [3, 4]], [1, 2])
    assert (one["by"], one["ts"], one["tt"], one["en"]) == (
        "AP8=",
        1767323045678000,
        "10:34:56.5Z",
        'it\'s "odd"',
    )


def _has_xml(database: Database) -> bool:
    try:
        return bool(database.run("SELECT '<a/>'::xml"))
    except ServerError:
        return False


# --- columns that change --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statements", "wanted", "is_read_again"),
    [
        (["ALTER TABLE t ADD w int"], [{"id": 1, "v": "1", "w": 5}, {"id": 2, "v": "2"}], False),
        (["ALTER TABLE t ADD w int DEFAULT 7"],
         [{"id": 1, "v": "1", "w": 5}, {"id": 2, "v": "2", "w": 7}], True),
        (["ALTER TABLE t RENAME v TO x", "ALTER TABLE t ADD w int"],
         [{"id": 1, "x": "1", "w": 5}, {"id": 2, "x": "2", "w": None}], True),
        (["ALTER TABLE t ALTER v TYPE int USING v::int", "ALTER TABLE t ADD w int"],
         [{"id": 1, "v": 1, "w": 5}, {"id": 2, "v": 2, "w": None}], True),
        (["ALTER TABLE t DROP v", "ALTER TABLE t ADD w int"],
         [{"id": 1, "w": 5}, {"id": 2, "w": None}], True),
    ],
    ids=["added", "added with a value", "renamed", "retyped", "dropped"],
)  # fmt: skip
@pytest.mark.parametrize("is_following", [True, False], ids=["followed", "unwatched"])
def test_columns_that_change_are_carried(database, statements, wanted, is_read_again, is_following):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, '1'), (2, '2')")
    folded, source = Folded(), database.source()
    follower = Follower(source, folded)
    follower.settle(database.end())
    database.run("UPDATE t SET v = v WHERE id = 1")  # so that the stream has described the table
    follower.settle(database.end())
    if not is_following:
        source.close()
    database.run(*statements, "UPDATE t SET w = 5 WHERE id = 1")
    if not is_following:
        source = database.source()
        follower = Follower(source, folded)
    follower.settle(database.end())
    source.close()
    if is_following:
        assert values(folded) == sorted(wanted, key=str)
        assert bool(folded.resnapshots) == is_read_again
    else:
        assert [{k: v for k, v in row.items() if v is not None} for row in values(folded)] == sorted(
            ({k: v for k, v in row.items() if v is not None} for row in wanted), key=str
        )
    assert [each.name for each in folded.schemas[TABLE].columns] == [
        name for (name,) in database.run(
            "SELECT attname FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 "
            "AND NOT attisdropped ORDER BY attnum"
        )
    ]  # fmt: skip


def test_another_primary_key_makes_the_table_be_read_again_under_it(database):
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v text NOT NULL)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')"
    )
    folded, source = Folded(), database.source()
    follower = Follower(source, folded)
    follower.settle(database.end())
    database.run("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (v)", "INSERT INTO t VALUES (3, 'c')")
    follower.settle(database.end())
    source.close()
    assert sorted(folded.tables[TABLE]) == [b'{"v":"a"}', b'{"v":"b"}', b'{"v":"c"}']


def test_a_table_under_another_name_stops_the_capture_with_both_names(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    folded, source = Folded(), database.source(tables=["t"])
    follower = Follower(source, folded)
    follower.settle(database.end())
    database.run("ALTER TABLE t RENAME TO u", "INSERT INTO u VALUES (1)")
    with pytest.raises(RequestError, match=r"public\.t is called public\.u now"):
        follower.settle(database.end())
    source.close()


def test_a_table_that_was_renamed_or_dropped_while_nobody_looked_is_read_under_its_name(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE gone (id int PRIMARY KEY)")
    folded = Folded()
    followed(database, folded)
    database.run("INSERT INTO t VALUES (1)", "INSERT INTO gone VALUES (1)", "ALTER TABLE t RENAME TO u")
    database.run("INSERT INTO u VALUES (2)", "DROP TABLE gone")
    followed(database, folded)
    assert values(folded, "public.u") == [{"id": 1}, {"id": 2}]
    assert values(folded) == values(folded, "public.gone") == []


def test_a_table_that_is_gone_stops_the_capture(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    folded, source = Folded(), database.source(tables=["t", "u"])
    follower = Follower(source, folded)
    follower.settle(database.end())
    database.run("DROP TABLE t")
    source._open()._looked_at -= 1000
    with pytest.raises(RequestError, match=r"table public\.t is gone"):
        follower.round()
    source.close()
    with pytest.raises(ConfigError, match=r"no table public\.t"):
        database.source(tables=["t", "u"]).connect(folded.state.position)


def test_a_table_that_publishing_would_break_is_left_alone(database):
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE logs (v text)", "INSERT INTO logs VALUES ('a')"
    )
    folded = Folded()
    followed(database, folded)
    database.run("UPDATE logs SET v = 'b'", "INSERT INTO t VALUES (1)")
    followed(database, folded)
    assert list(folded.schemas) == [TABLE] and values(folded) == [{"id": 1}]


def test_a_table_that_is_new_or_was_changed_without_a_row_is_found(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    folded, source = Folded(), database.source()
    follower = Follower(source, folded)
    follower.settle(database.end())
    database.run(
        "CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (1)", "ALTER TABLE t ADD v int DEFAULT 7"
    )
    source._open()._looked_at -= 1000
    follower.round()
    follower.settle(database.end())
    database.run("INSERT INTO u VALUES (2)")
    follower.settle(database.end())
    source.close()
    assert values(folded) == [{"id": 1, "v": 7}]
    assert values(folded, "public.u") == [{"id": 1}, {"id": 2}]


def test_a_table_that_was_not_published_for_a_while_is_read_again(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    folded = Folded()
    followed(database, folded)
    database.run("ALTER PUBLICATION headrace_test DROP TABLE t", "INSERT INTO t VALUES (1)")
    followed(database, folded)
    assert values(folded) == [{"id": 1}] and "publication" in folded.resnapshots[0].reason


# --- what is missing, what is lost ----------------------------------------------------------------


def test_check_names_what_the_database_lacks_with_the_statements_that_help(database):
    database.run(
        "CREATE TABLE t (id int)", "CREATE TABLE u (id int PRIMARY KEY)", "DROP ROLE IF EXISTS poor",
        f"CREATE ROLE poor LOGIN PASSWORD '{PASSWORD}'",
    )  # fmt: skip
    url = database.server.url(database.name).replace("postgres@", "poor@")
    source = PostgresSource(PostgresAddress.parse(url), PASSWORD, name="test", tables=["t", "u", "missing"])
    lacks = {each.what: each.statements for each in source.check()}
    said = " ".join(lacks)
    for part in (
        "may not replicate",
        "no table public.missing",
        "no replica identity",
        "may not be read",
        "publication",
    ):
        assert part in said
    with pytest.raises(ConfigError, match=r"not ready.*ALTER ROLE"):
        source.connect(None)
    database.run("ALTER TABLE t ADD PRIMARY KEY (id)")
    for statements in lacks.values():
        for each in statements:
            if "IDENTITY" not in each:
                database.run(each)
    again = PostgresSource(PostgresAddress.parse(url), PASSWORD, name="test", tables=["t", "u"])
    assert again.check() == []
    folded = Folded()
    database.run("INSERT INTO t VALUES (1)")
    Follower(again, folded).settle(database.end())
    again.close()
    assert values(folded) == [{"id": 1}]
    database.run("DROP PUBLICATION headrace_test", "DROP OWNED BY poor")


def test_a_slot_that_is_gone_or_was_used_by_others_is_noticed(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    folded = Folded()
    followed(database, folded)
    database.run("INSERT INTO t VALUES (1)")
    database.run(f"SELECT pg_replication_slot_advance('{database.idle_slot()}', pg_current_wal_lsn())")
    with pytest.raises(SourceChanged, match="resnapshot test"):
        database.source().connect(folded.state.position)
    database.run(f"SELECT pg_drop_replication_slot('{database.idle_slot()}')")
    with pytest.raises(SourceChanged, match="slot is gone"):
        database.source().connect(folded.state.position)
    database.run("SELECT pg_create_logical_replication_slot('headrace_test', 'pgoutput')")
    with pytest.raises(SourceChanged):
        database.source().connect(folded.state.position)


def test_a_capture_that_runs_already_is_not_run_twice(database, monkeypatch):
    monkeypatch.setattr("headrace.capture.postgres.source.RELEASE_S", 0.1)
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    first = database.source()
    first.connect(None)
    with pytest.raises(RetriableError, match="in use"):
        database.source().connect(None)
    first.close()


def test_an_idle_database_need_not_keep_its_log(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE noise (v text)")
    folded, source = Folded(), database.source(tables=["t"])
    follower = Follower(source, folded)
    follower.settle(database.end())
    database.run("INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 2000)")
    wanted = database.end()
    source._open()._moved_at -= 1000
    for _ in range(100):
        source._open()._moved_at -= 1000
        follower.round()
        if folded.state.position["lsn"] >= wanted:
            break
    assert source.lag().bytes < 100_000
    source.close()


def test_the_lag_counts_bytes_and_transactions_that_were_not_read_and_the_log_that_is_held(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    folded, source = Folded(), database.source(tables=["t"])
    follower = Follower(source, folded)
    follower.settle(database.end())
    database.run("INSERT INTO t VALUES (0)")
    follower.settle(database.end())
    with database.connect() as open_for_long:
        open_for_long.query("BEGIN; INSERT INTO t VALUES (-1)")
        for number in range(1, 8):
            database.run(f"INSERT INTO t VALUES ({number})")
        behind = source.lag()
        assert behind.bytes > 0 and 7 <= behind.transactions <= 20
        assert behind.held_bytes >= behind.bytes
        follower.settle(database.end())
        database.run("CHECKPOINT", "SELECT pg_switch_wal()", "CHECKPOINT")
        follower.settle(database.end())
        assert source.lag().held_bytes > source.lag().bytes, "it keeps what an open transaction began with"
        open_for_long.query("ROLLBACK")
    source.close()


def test_rows_are_counted_before_the_table_was_analyzed(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.run("INSERT INTO t SELECT n, repeat('x', 100) FROM generate_series(1, 20000) n")
    source = database.source(tables=["t"])
    source.connect(None)
    assert 5_000 < source.count("public.t") < 80_000
    source.close()


def test_removing_a_capture_leaves_nothing_behind(database):
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    source = database.source()
    source.connect(None)
    source.remove()
    assert database.run("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'headrace_test'") == []
    assert database.run("SELECT 1 FROM pg_publication") == []


@pytest.mark.parametrize("word", ["hunter2"])
def test_no_error_of_a_source_has_the_password(server, word):
    for url in (server.url(), server.url("nowhere"), "postgresql://ann@127.0.0.1:1/x"):
        source = PostgresSource(PostgresAddress.parse(url), word, name="test")
        with pytest.raises(HeadraceError) as failed:
            source.connect(None)
        assert word not in str(failed.value) + repr(failed.value) + source.url
