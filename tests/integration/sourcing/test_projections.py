"""Projections are kept by those who serve the entities: exactly once, over kills, rebuilt beside the old."""

import contextlib
import json
import os
import random
import sqlite3
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.integration.console.http_client import ask
from tests.integration.sourcing.serving import ServerProcess, entities_at, serving
from tests.unit.sourcing.accounts import Deposit, Withdraw, Withdrawn, account_type
from tests.unit.sourcing.balances import ACCOUNT_EVENTS, Balance, balances

from headrace.app import RunOptions, import_app
from headrace.app.verify import affected_rows, reason_of, verified
from headrace.cli.main import run
from headrace.client import Connection, RawFetcher
from headrace.sourcing.projections import ProjectionStart, make_projection, replayed_projection
from headrace.sourcing.topics import wait_committed_ends
from headrace.views import ViewBatch, open_store, rows_as_changes
from headrace.views.rebuilt import Rebuilds

FILE = Path(__file__).with_name("projected_bank.py")
DEADLINE_S = 120


def wait_until(condition, what):
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.05)
    return found


@pytest.fixture
def app():
    return f"p{uuid.uuid4().hex[:10]}"


class Bank:
    """Accounts whose server keeps one projection, and what its store shows."""

    def __init__(self, log, app, folder):
        self.log, self.app = log, app
        self.kinds = {"account": account_type(partitions=2)}
        self.entities = entities_at(log.bootstrap_servers, self.kinds, app)
        self.rebuilds = Rebuilds(folder)
        self.url = f"sqlite:///{folder}/projections.db"
        self.messages = []

    def projection(self, function=balances, key=("entity",)):
        return make_projection(function, ACCOUNT_EVENTS, self.kinds, key=key, name="balances", store=None)

    def serving(self, function=balances, *, compare=False):
        start = ProjectionStart(
            store=self.url, rebuilds=self.rebuilds, compare=compare, say=self.messages.append
        )
        return serving(
            self.log.bootstrap_servers,
            self.kinds,
            self.app,
            session_timeout_ms=6_000,
            projections=[(self.projection(function), start)],
        )

    def deposit(self, entity, amount):
        return self.entities.account(entity).send_and_wait(Deposit(amount), timeout_s=DEADLINE_S)

    def shown(self):
        with contextlib.closing(open_store(self.url)) as store:
            if "balances" not in store.views():
                return {}
            return {each["entity"]: each["balance"] for each in store.read("balances").to_pylist()}

    def shows(self, **balances):
        return wait_until(lambda: self.shown() == balances, lambda: f"{balances} and not {self.shown()}")


@pytest.fixture
def bank(our_log, app, tmp_path):
    made = Bank(our_log, app, tmp_path)
    yield made
    made.entities.close()


def test_rows_follow_the_events_and_a_restart_goes_on_where_it_was(bank):
    with bank.serving():
        bank.deposit("a", 5)
        bank.deposit("b", 3)
        bank.entities.account("b").send_and_wait(Withdraw(3))
        bank.shows(a=5)
    with bank.serving():
        bank.deposit("a", 1)
        bank.shows(a=6)
    assert not bank.messages


def twice(row: Balance | None, happened) -> Balance | None:
    """Counts what was withdrawn double."""
    made = balances(row, happened)
    if made is not None and isinstance(happened.event, Withdrawn):
        made = replace(made, balance=made.balance - happened.event.amount)
    return made


def test_a_function_that_changed_makes_the_rows_anew(bank):
    with bank.serving():
        bank.deposit("a", 5)
        bank.entities.account("a").send_and_wait(Withdraw(1))
        bank.shows(a=4)
    with bank.serving(twice):
        bank.shows(a=3)
        bank.deposit("b", 2)
        bank.shows(a=3, b=2)


def test_a_rebuild_is_compared_and_waits_until_it_is_approved(bank):
    with bank.serving():
        bank.deposit("a", 5)
        bank.deposit("b", 7)
        bank.entities.account("a").send_and_wait(Withdraw(1))
        bank.shows(a=4, b=7)
    with bank.serving(twice, compare=True):
        bank.deposit("c", 2)  # comes after what is compared
        wait_until(lambda: bank.rebuilds.read("balances"), "no rebuild")
        found = wait_until(lambda: bank.rebuilds.read("balances").comparison, "no comparison")
        assert (found.changed, found.added, found.removed, found.newer_records) == (1, 0, 0, 0)
        (differs,) = found.differences
        assert (differs.key, differs.shown["balance"], differs.rebuilt["balance"]) == ({"entity": "a"}, 4, 3)
        assert bank.shown() == {"a": 4, "b": 7}
    with bank.serving(twice):  # a process that knows nothing of the comparison holds it back, too
        bank.deposit("c", 1)
        assert bank.shown() == {"a": 4, "b": 7}
        wait_until(lambda: len(bank.messages) >= 3, "it was not compared again")
        bank.rebuilds.approve("balances")
        bank.shows(a=3, b=7, c=3)
        assert bank.rebuilds.views() == []


def test_a_rebuild_that_finds_the_same_rows_is_shown_at_once(bank):
    with bank.serving():
        bank.deposit("a", 5)
        bank.shows(a=5)
        bank.rebuilds.request("balances", compare=True)
        wait_until(lambda: bank.rebuilds.requested("balances") is None, "it was not rebuilt")
        bank.deposit("a", 1)
        bank.shows(a=6)
    assert any("nothing differs" in each for each in bank.messages)


def test_an_event_that_the_function_fails_on_is_named_and_not_skipped(bank):
    def balances(row: Balance | None, happened) -> Balance | None:
        return balances_of(row, happened) if happened.event.amount != 13 else 1 / 0

    with bank.serving(balances):
        bank.deposit("a", 5)
        bank.shows(a=5)
        bank.deposit("a", 13)
        wait_until(lambda: any("ZeroDivisionError" in each for each in bank.messages), "no message")
        assert bank.shown() == {"a": 5}
    with bank.serving():
        bank.shows(a=18)


balances_of = balances


def test_rows_of_another_log_are_not_taken_for_those_of_this_one(bank):
    with bank.serving():
        bank.deposit("a", 5)
        bank.shows(a=5)
    with contextlib.closing(open_store(bank.url)) as store:
        reflected = store.reflected("balances")
        ahead = {topic: {0: 1_000, 1: 1_000} for topic in reflected.offsets}
        store.apply("balances", ViewBatch(reflected.query_id, reflected.batch_id + 1, None, ahead))
    with bank.serving():
        wait_until(lambda: any("another log" in each for each in bank.messages), "no message")


def test_rows_that_are_damaged_are_made_anew_on_request(bank):
    with bank.serving():
        bank.deposit("a", 5)
        bank.shows(a=5)
    with contextlib.closing(sqlite3.connect(bank.url.removeprefix("sqlite:///"))) as database:
        database.execute("UPDATE balances SET balance = 50")
        database.commit()
    with bank.serving():
        wait_until(lambda: any("trying again" in each for each in bank.messages), "no message")
        bank.rebuilds.request("balances", compare=False)
        wait_until(lambda: bank.rebuilds.requested("balances") is None, "it was not rebuilt")
        bank.shows(a=5)


class Processes:
    """Two serving processes with one folder; each is killed now and then."""

    def __init__(self, bootstrap, app, folder):
        self._start = lambda: ServerProcess(
            bootstrap, FILE, "--data", str(folder), environment={"HEADRACE_TEST_APP": app}
        )
        self.processes = [self._start() for _ in range(2)]
        for each in self.processes:
            each.wait_ready()

    def kill(self, number):
        self.processes[number].kill()
        self.processes[number] = self._start()

    def close(self):
        for each in self.processes:
            each.kill()


def kills(our_log, app, tmp_path, monkeypatch, *, count, commands):
    """Commands from several threads while the processes are killed; then every projection is checked."""
    seed = int(os.environ.get("HEADRACE_CRASH_SEED", random.randrange(1 << 30)))
    print("seed", seed)
    chance = random.Random(seed)
    monkeypatch.setenv("HEADRACE_TEST_APP", app)
    loaded = import_app(FILE)
    loaded.entities.connect(our_log)
    processes = Processes(our_log.bootstrap_servers, app, tmp_path)
    with contextlib.ExitStack() as ending, ThreadPoolExecutor(8) as pool:
        ending.callback(loaded.entities.close)
        ending.callback(processes.close)

        def send(number):
            command = (Deposit, Withdraw)[number % 3 == 2](number % 4 + 1)
            account = loaded.entities.account(f"a-{number % 10}")
            account.send_and_wait(command, command_id=f"c-{number}", timeout_s=DEADLINE_S)

        for kill in range(count + 1):
            sending = [pool.submit(send, chance.randrange(1 << 30)) for _ in range(commands)]
            sending[commands // 2].result()
            if kill < count:
                time.sleep(chance.uniform(0, 0.5))
                processes.kill(chance.randrange(2))
            for each in sending:
                each.result()
        url = f"sqlite:///{tmp_path}/projections.db"
        connection = Connection(bootstrap_servers=our_log.bootstrap_servers)
        for each in loaded.projections.values():
            require_exactly_once(url, each, app, connection)


def require_exactly_once(url, projection, app, connection):
    """The rows are those of all events, and each change begins where the one before it ended."""
    topic = f"{app}.account.events"
    with RawFetcher(connection) as fetcher:
        ends = wait_committed_ends(fetcher, topic)  # an answer may be read before its events
    with contextlib.closing(open_store(url)) as store:

        def reflected():
            return dict(store.reflected(projection.name).offsets.get(topic, {}))

        wait_until(lambda: reflected() == ends, lambda: f"reflects {reflected()} and not {ends}")
        rows, changes = store.read(projection.name), store.changes(projection.name, limit=100_000)
    in_order = [(name, "ascending") for name in projection.key]
    recomputed = replayed_projection(projection, app, connection, ends)
    assert rows.sort_by(in_order).equals(recomputed.sort_by(in_order))
    last = {}
    for each in changes:
        key = tuple(each.key.values())
        assert each.before == last.get(key), each
        last[key] = each.after
    assert len([each for each in last.values() if each is not None]) == rows.num_rows


def test_each_event_counts_once_while_serving_processes_are_killed(our_log, app, tmp_path, monkeypatch):
    kills(our_log, app, tmp_path, monkeypatch, count=2, commands=40)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_each_event_counts_once_through_thirty_kills(our_log, app, tmp_path, monkeypatch):
    kills(our_log, app, tmp_path, monkeypatch, count=30, commands=100)


@contextlib.contextmanager
def running(app, data, log):
    """`headrace run`, without Spark, since there are no other views; the address of its console."""
    command = [sys.executable, "-m", "headrace", "run", str(FILE), "--data", str(data), "--json"]
    command += ["--bootstrap", log, "--http", "127.0.0.1:0", "--until-stdin-closes"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HEADRACE_TEST_APP": app, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        messages = (json.loads(line).get("message", "") for line in process.stdout)
        found = {}
        for each in messages:
            if each.startswith("console: "):
                found["url"] = each.split()[1]
            if each.startswith("serving "):
                break
        yield found["url"]
    finally:
        process.stdin.close()
        process.wait(DEADLINE_S)
        process.stdout.close()


def test_a_projection_is_served_like_any_view_and_a_token_is_honoured(
    our_log, app, tmp_path, monkeypatch, capsys
):
    data, log = tmp_path / "data", our_log.bootstrap_servers
    with running(app, data, log) as url:
        wait_until(lambda: ask(url, "GET", "/v1/views/balances/rows").status == 200, "not built")
        for number in range(1, 21):
            command = f"/v1/entities/account/a-{number % 3}/commands/Deposit"
            token = ask(url, "POST", command, {"amount": number}).json["token"]
            read = ask(
                url, "GET", "/v1/views/balances/rows", entity=f"a-{number % 3}", token=[token], wait_ms=20_000
            )
            assert read.status == 200, read.body
            (row,) = read.json["rows"]
            assert row["balance"] == sum(each for each in range(1, number + 1) if each % 3 == number % 3)
        state = ask(url, "GET", "/v1/pipelines").json
        assert "view:balances" in [each["id"] for each in state["nodes"]]
        assert ask(url, "POST", "/v1/pipelines/rebuild", {"confirm": app}).status == 202
        wait_until(lambda: all("." in each for each in made_by(data, "balances", "amounts")), "not rebuilt")
        capsys.readouterr()
        assert run(["views", "show", "balances", "--data", str(data), "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["rows"]) == 3
        monkeypatch.setenv("HEADRACE_TEST_APP", app)
        options = RunOptions(data=data, bootstrap=log)
        found = list(verified(import_app(FILE), options))
        assert [(each.view, each.is_equal, each.failure) for each in found] == [
            ("balances", True, None),
            ("amounts", True, None),
        ]
        behind = reason_of(import_app(FILE), options, "balances", [("entity", "a-1")], 3)
        assert (behind.row["balance"], behind.count) == (70, 7)
        assert [(each.event["type"], each.event["command_name"]) for each in behind.records] == [
            ("Deposited", "Deposit")
        ] * 3
        touched = affected_rows(import_app(FILE), options, behind.records[0].place)
        assert [(each.view, each.key) for each in touched] == [
            ("balances", {"entity": "a-1"}),
            ("amounts", {"entity": "a-1", "amount": 1}),
        ]
    tamper(data / "projections.db")
    (found,) = verified(import_app(FILE), options, "balances")
    assert [each.key for each in found.differences] == [{"entity": "a-1"}]


def made_by(data, *views):
    """The queries that made these; of a rebuild that was asked for, with its id after a point."""
    with contextlib.closing(open_store(f"sqlite:///{data}/projections.db")) as store:
        return [store.reflected(view).query_id for view in views]


def tamper(path):
    """A row that no event made, written as if the projection had."""
    with contextlib.closing(open_store(f"sqlite:///{path}")) as store:
        shown = store.snapshot("balances")
        rows = shown.rows.filter(pc.equal(shown.rows["entity"], "a-1"))
        wrong = rows.set_column(
            rows.column_names.index("balance"), "balance", pc.add(rows["balance"], pa.scalar(1, pa.int64()))
        )
        reflected = shown.reflected
        batch = ViewBatch(reflected.query_id, reflected.batch_id + 1, rows_as_changes(wrong))
        assert store.apply("balances", batch)
