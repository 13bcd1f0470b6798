"""Targets and brokers that stop, come back, come back empty, or refuse a row."""

import uuid

import pytest
from tests.integration.derived.conftest import create_topic, following, has_all, send, wait_until

from headrace.capture.mysql import MysqlAddress, MysqlConnection
from headrace.capture.postgres import PostgresAddress, PostgresConnection
from headrace.client import Connection
from headrace.derived import Follow, open_target, redis, table, verify_follow
from headrace.testing.broker import BrokerProcess
from headrace.testing.kafka import PeerUnavailable
from headrace.testing.mysql_process import PASSWORD as MYSQL_PASSWORD
from headrace.testing.mysql_process import MysqlProcess
from headrace.testing.postgres_process import PASSWORD, PostgresProcess
from headrace.testing.redis import RedisProcess

ROWS = [(b'{"id":%d}' % each, {"id": each, "name": f"n{each}"}) for each in range(200)]


@pytest.fixture
def own_redis():
    try:
        server = RedisProcess(durable=False)
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield server


def followed(bootstrap, into, rows=ROWS):
    topic = f"faults-{uuid.uuid4()}"
    create_topic(bootstrap, topic)
    send(bootstrap, topic, rows)
    return Follow(name=topic, topic=topic, into=into)


def is_equal(bootstrap, follow, rows):
    found = verify_follow(follow, Connection(bootstrap_servers=bootstrap))
    return found.is_equal and found.rows == rows and not found.building


def test_a_cache_that_comes_back_empty_is_built_again_and_says_so(bootstrap, own_redis):
    follow, messages = followed(bootstrap, redis(own_redis.url(), prefix="c:")), []
    with following(bootstrap, follow, on_message=messages.append) as run:
        wait_until(lambda: has_all(run))
        own_redis.stop()
        send(bootstrap, follow.topic, [(b'{"id":900}', {"id": 900})])
        wait_until(lambda: run.status.state == "reconnecting")
        assert any(each in run.status.error for each in ("cannot be reached", "lost", "closed"))
        own_redis.start()
        wait_until(lambda: has_all(run))
        wait_until(lambda: is_equal(bootstrap, follow, 201))
        assert own_redis.connect().call("GET", "c:900") == b'{"id":900}'


@pytest.mark.slow
def test_a_cache_that_is_flushed_is_noticed_with_the_next_change(bootstrap, own_redis):
    follow, messages = followed(bootstrap, redis(own_redis.url(), prefix="c:", values="hash")), []
    with following(bootstrap, follow, on_message=messages.append) as run:
        wait_until(lambda: has_all(run))
        own_redis.connect().call("FLUSHALL")
        send(bootstrap, follow.topic, [(b'{"id":1}', None)])
        wait_until(lambda: any("no longer has the position" in each for each in messages))
        wait_until(lambda: has_all(run) and is_equal(bootstrap, follow, 199))


def test_a_cache_without_the_position_but_with_rows_is_repaired(bootstrap, own_redis):
    follow, messages = followed(bootstrap, redis(own_redis.url(), prefix="c:")), []
    with following(bootstrap, follow) as run:
        wait_until(lambda: has_all(run))
    client = own_redis.connect()
    client.call("DEL", f"headrace:follower:{follow.name}")
    client.call("SET", "c:900", "{}")
    client.call("DEL", "c:5")
    with following(bootstrap, follow, on_message=messages.append) as run:
        wait_until(lambda: run.status.repairs == 1 and has_all(run))
    assert is_equal(bootstrap, follow, 200) and client.call("GET", "c:900") is None
    assert any("2 were corrected" in each for each in messages)


def test_a_postgresql_that_is_stopped_hard_is_waited_for(bootstrap):
    try:
        server = PostgresProcess()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    with server:
        follow = followed(bootstrap, table(server.url(), "customers"))
        with following(bootstrap, follow) as run:
            wait_until(lambda: has_all(run))
            server.stop(hard=True)
            send(bootstrap, follow.topic, [(b'{"id":1}', None), (b'{"id":900}', {"id": 900, "new": [1]})])
            wait_until(lambda: run.status.state == "reconnecting")
            server.start()
            wait_until(lambda: has_all(run) and is_equal(bootstrap, follow, 200))
            assert run.status.reconnects >= 1 and PASSWORD not in str(run.status.to_json())


def test_a_row_that_postgresql_refuses_is_a_dead_letter_and_the_others_are_written(
    bootstrap, postgres_process
):
    rows = [*ROWS[:10], (b'{"id":77}', {"id": 77, "name": "a\0b"}), (b'{"id":78}', {"id": 78, "_key": 1})]
    follow = followed(bootstrap, table(postgres_process.url(), f"refused_{uuid.uuid4().hex[:8]}"), rows)
    with following(bootstrap, follow) as run:
        wait_until(lambda: has_all(run))
        assert run.status.dead == 2
    found = verify_follow(follow, Connection(bootstrap_servers=bootstrap)).differences
    assert {each.identity: each.kind for each in found} == {b'{"id":77}': "missing", b'{"id":78}': "missing"}


def test_a_table_that_somebody_made_keeps_its_types(bootstrap, postgres_process):
    name = f"made_{uuid.uuid4().hex[:8]}"
    with PostgresConnection(PostgresAddress.parse(postgres_process.url()), PASSWORD) as database:
        database.query(
            f"CREATE TABLE {name} (_key bytea PRIMARY KEY, id int, price numeric(8,2), on_day date)"
        )
        row = {"id": 1, "price": "12.50", "on_day": "2026-02-03"}
        follow = followed(bootstrap, table(postgres_process.url(), name), [(b"1", row)])
        with following(bootstrap, follow) as run:
            wait_until(lambda: has_all(run))
        assert database.query(f"SELECT id, price, on_day FROM {name}") == [("1", "12.50", "2026-02-03")]
    assert is_equal(bootstrap, follow, 1)


def test_a_mariadb_that_is_stopped_hard_is_waited_for(bootstrap):
    try:
        server = MysqlProcess()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    with server:
        with MysqlConnection(MysqlAddress.parse(server.url("mysql")), MYSQL_PASSWORD) as admin:
            admin.query("CREATE DATABASE derived")
        follow = followed(bootstrap, table(server.url("derived"), "customers"))
        with following(bootstrap, follow) as run:
            wait_until(lambda: has_all(run))
            server.stop(hard=True)
            send(bootstrap, follow.topic, [(b'{"id":1}', None), (b'{"id":900}', {"id": 900, "new": [1]})])
            wait_until(lambda: run.status.state == "reconnecting")
            server.start()
            wait_until(lambda: has_all(run) and is_equal(bootstrap, follow, 200))
            assert run.status.reconnects >= 1 and MYSQL_PASSWORD not in str(run.status.to_json())


def test_a_mariadb_table_that_somebody_made_keeps_its_types_and_what_it_refuses_is_dead(bootstrap, mariadb):
    name = f"made_{uuid.uuid4().hex[:8]}"
    with MysqlConnection(MysqlAddress.parse(mariadb.url("mysql")), MYSQL_PASSWORD) as database:
        database.query(f"CREATE DATABASE {name}")
        database.query(f"USE {name}")
        database.query(
            "CREATE TABLE made (_key varbinary(50) PRIMARY KEY, id int, price decimal(8,2), day date)"
        )
        row = {"id": 1, "price": "12.50", "day": "2026-02-03"}
        bad = [(b"2", {"id": 2, "day": "never"}), (b"3", {"_key": 1}), (b"4", {"name": "x" * (20 << 20)})]
        follow = followed(bootstrap, table(mariadb.url(name), "made"), [(b"1", row), *bad[:2]])
        with following(bootstrap, follow) as run:
            wait_until(lambda: has_all(run))
            assert run.status.dead == 2
        found = database.query("SELECT id, price, day FROM made")
        assert found == [("1", "12.50", "2026-02-03")]
        target, refused = open_target(follow), []
        target.apply(dict(bad[2:]), (), target.state(), lambda key, why: refused.append((key, why)))
        target.close()
        assert refused[0][0] == b"4" and "max_allowed_packet" in refused[0][1]
    found = verify_follow(follow, Connection(bootstrap_servers=bootstrap)).differences
    assert {each.identity: each.kind for each in found} == {b"2": "missing", b"3": "missing"}


def test_a_broker_that_is_killed_is_waited_for(tmp_path):
    with BrokerProcess(tmp_path / "log") as broker:
        into = table(f"sqlite:///{tmp_path / 'derived.db'}", "customers")
        follow = followed(broker.bootstrap, into)
        with following(broker.bootstrap, follow) as run:
            wait_until(lambda: has_all(run))
            broker.kill()
            wait_until(lambda: run.status.state == "reconnecting")
            broker.restart()
            send(broker.bootstrap, follow.topic, [(b'{"id":900}', {"id": 900})])
            wait_until(lambda: has_all(run) and is_equal(broker.bootstrap, follow, 201))


def test_a_topic_that_is_created_again_brings_its_rows(bootstrap, tmp_path):
    from headrace.client.topics import drop_topic

    follow = followed(bootstrap, table(f"sqlite:///{tmp_path / 'derived.db'}", "customers"))
    with following(bootstrap, follow) as run:
        wait_until(lambda: has_all(run))
    drop_topic(Connection(bootstrap_servers=bootstrap), follow.topic)
    create_topic(bootstrap, follow.topic)
    send(bootstrap, follow.topic, [(b"1", {"id": 1})])
    messages = []
    with following(bootstrap, follow, on_message=messages.append) as run:
        wait_until(lambda: run.status.repairs == 1 and has_all(run))
    assert is_equal(bootstrap, follow, 1) and any("created again" in each for each in messages)
    target = open_target(follow)
    assert list(target.rows()) == [(b"1", {"id": 1})]
    target.close()
