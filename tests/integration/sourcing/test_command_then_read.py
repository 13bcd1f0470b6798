"""A command, and at once a read of a view with its token: the read holds the command, or says "not yet".

Through a window, a join, a second and a third stage, while others write, and over restarts. The read
that has no token is made too, and counted: if it never came too early, the trials would show nothing.
"""

import asyncio
import contextlib
import itertools
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.console.http_client import ask

from headrace.app import import_app
from headrace.app.background_run import BackgroundRun
from headrace.app.options import RunOptions
from headrace.app.run.runner import running
from headrace.app.verify import reason_of
from headrace.console.write.tokens import encode_token
from headrace.errors import RetriableError
from headrace.testing.console import ConsoleProcess

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

FILE = Path(__file__).with_name("deposits.py")
VIEWS = ("per_minute", "with_owner", "second_per_minute", "third_with_owner")
JOINED = ("with_owner", "third_with_owner")
DEADLINE_S = 600


@dataclass(frozen=True)
class Trial:
    """What a read of a view found: with the token, and without it a moment before."""

    view: str
    entity: str
    found: bool
    found_without: bool
    not_yet: int


class Trials:
    """An application whose views are read through a console."""

    def __init__(self, app, url):
        self.app, self.url = app, url
        self.deposit = sys.modules[app.entity_types["account"].decide.__module__].Deposit
        self.numbers = itertools.count()

    def command(self, entity, amount):
        """Sends a deposit as an application does, again while nobody serves the entity; its token."""
        ident, deadline = uuid.uuid4().hex, time.monotonic() + DEADLINE_S
        while True:
            try:
                sent = self.app.entities.account(entity).send(self.deposit(amount), command_id=ident, by="me")
                return asyncio.run(sent).token
            except RetriableError:
                assert time.monotonic() < deadline

    def rows(self, view, **fields):
        return ask(self.url, "GET", f"/v1/views/{view}/rows", **fields)

    def wait_built(self, check=lambda: None):
        """Returns once every view can be read."""
        deadline = time.monotonic() + DEADLINE_S
        while any(self.rows(view, limit=1).status != 200 for view in VIEWS):
            assert time.monotonic() < deadline, "the views were not built"
            check()

    def read(self, view, entity, tokens, wait_ms=20_000):
        """The rows of an entity with these tokens, and how often the answer was "not yet"."""
        deadline, not_yet = time.monotonic() + DEADLINE_S, 0
        while True:
            answer = self.rows(view, entity=entity, token=tokens, wait_ms=wait_ms)
            if answer.status == 200:
                return answer.json["rows"], not_yet
            assert answer.status in (409, 503), answer.body
            assert time.monotonic() < deadline, answer.body
            not_yet += 1

    def trial(self, view) -> Trial:
        entity, tokens = f"e-{next(self.numbers)}", []
        if view in JOINED:
            owner = {"value": {"id": entity, "owner": "me"}, "key": entity}
            written = ask(self.url, "POST", f"/v1/topics/{self.app.name}.owners/records", owner)
            assert written.status == 200, written.body
            tokens.append(written.json["token"])
        tokens.append(self.command(entity, 2))
        early = self.rows(view, entity=entity)
        rows, not_yet = self.read(view, entity, tokens)
        found = [each["owner"] == "me" if view in JOINED else each["deposits"] == 1 for each in rows]
        return Trial(view, entity, found == [True], bool(early.status == 200 and early.json["rows"]), not_yet)

    @contextlib.contextmanager
    def load(self, pause_s):
        """Deposits of others, all the time."""
        stop = threading.Event()

        def deposit():
            for number in itertools.count():
                if stop.wait(pause_s):
                    return
                self.command(f"other-{number % 20}", 2)

        thread = threading.Thread(target=deposit)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


@contextlib.contextmanager
def trials_of(name, log, data, monkeypatch):
    monkeypatch.setenv("HEADRACE_TEST_APP", name)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    app = import_app(FILE)
    app.entities.connect(log)
    try:
        with ConsoleProcess(log.bootstrap_servers, data=data) as console:
            yield Trials(app, console.url)
    finally:
        app.entities.close()


def report(found) -> None:
    for view, each in Counter(each.view for each in found).items():
        missed = sum(one.view == view and not one.found_without for one in found)
        not_yet = sum(one.not_yet for one in found if one.view == view)
        print(f"{view}: {each} trials, {missed} missed without the token, {not_yet} answers of not yet")
    assert all(each.found for each in found), [each for each in found if not each.found]
    assert any(not each.found_without for each in found), "no read came too early: the trials show nothing"


def test_a_read_with_the_token_of_a_command_holds_it_through_every_stage(
    our_log, tmp_path, spark, monkeypatch
):
    data = tmp_path / "data"
    options = RunOptions(data=data, bootstrap=our_log.bootstrap_servers, file=FILE)
    with trials_of(f"d{uuid.uuid4().hex[:8]}", our_log, data, monkeypatch) as trials:
        with kept(trials.app, options, spark), trials.load(0.1), ThreadPoolExecutor(4) as pool:
            found = list(pool.map(trials.trial, VIEWS * 3))
            token = trials.command("filtered", 1)  # nothing of it gets to the second stage
            assert trials.read("second_per_minute", "filtered", [token])[0] == []
        report(found)
        joined = next(each for each in found if each.view == "with_owner")
        key = [("entity", joined.entity), ("version", "1")]
        behind = reason_of(trials.app, options, "with_owner", key, 10)
        (event,) = [each.event for each in behind.records if each.event]
        assert (event["command_name"], event["by"]) == ("Deposit", "me")
        foreign = trials.rows("second_per_minute", token=encode_token({"another": {0: 1}}))
        assert (foreign.status, foreign.json["type"]) == (400, "urn:headrace:problem:foreign-token")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_command_behind_a_row_and_the_rows_of_its_event_are_told_over_http(
    our_log, tmp_path, spark, monkeypatch
):
    data = tmp_path / "data"
    options = RunOptions(data=data, bootstrap=our_log.bootstrap_servers, file=FILE)
    with trials_of(f"d{uuid.uuid4().hex[:8]}", our_log, data, monkeypatch) as trials:
        with kept(trials.app, options, spark):
            assert trials.trial("with_owner").found
            key = {"entity": "e-0", "version": 1}
            why = ask(trials.url, "POST", "/v1/views/with_owner/why", key)
            assert why.status == 200, why.body
            (event,) = [each for each in why.json["records"] if each["command"]]
            assert (event["command"]["name"], event["by"]) == ("Deposit", "me")
            place = f"{event['topic']}/records/{event['partition']}/{event['offset']}"
            affects = ask(trials.url, "POST", f"/v1/topics/{place}/affects")
            assert affects.status == 200, affects.body
            assert {"view": "with_owner", "key": key} in affects.json["rows"]
        wrong = ask(trials.url, "POST", "/v1/views/with_owner/why", {"entity": "e-0"})
        assert (wrong.status, "version" in wrong.json["detail"]) == (400, True)


@contextlib.contextmanager
def kept(app, options, spark):
    """The application in a thread that starts its queries again, should one fail."""
    run = BackgroundRun.begin("deposits", lambda: running(app, options, spark=spark))
    try:
        yield
    finally:
        run.stop()


class Driver:
    """`headrace run`, which the test kills where it stands, and starts again."""

    def __init__(self, log, data):
        self._command = [sys.executable, "-m", "headrace", "run", str(FILE), "--data", str(data)]
        self._command += ["--bootstrap", log.bootstrap_servers, "--no-http", "--json", "--until-stdin-closes"]
        self._messages = data.parent / "driver.messages"
        self.start()

    def start(self):
        with self._messages.open("ab") as messages:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=messages, stderr=messages
            )

    def restart(self):
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self.start()

    def kept_until(self, futures):
        """Waits for these, and keeps it running."""
        while wait(futures, timeout=1).not_done:
            self.keep()

    def keep(self):
        """Starts it again should it have given up, as a supervisor would."""
        if self._process.poll() is not None:
            self._process.stdin.close()
            self.start()

    def end(self):
        self._process.stdin.close()
        self._process.wait(120)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_a_thousand_reads_hold_their_commands_under_load_and_over_kills(our_log, tmp_path, monkeypatch):
    data = tmp_path / "data"
    seed = int(os.environ.get("HEADRACE_CRASH_SEED", random.randrange(1 << 30)))
    print("seed", seed)
    count = int(os.environ.get("HEADRACE_TRIALS", "1000"))
    kills = sorted(random.Random(seed).sample(range(count // 10, count * 9 // 10), 3))
    with trials_of(f"d{uuid.uuid4().hex[:8]}", our_log, data, monkeypatch) as trials:
        data.mkdir(parents=True, exist_ok=True)
        driver = Driver(our_log, data)
        try:
            trials.wait_built(driver.keep)
            with trials.load(0.02), ThreadPoolExecutor(40) as pool:
                futures = [pool.submit(trials.trial, view) for view in VIEWS * (count // 4)]
                for at in kills:
                    driver.kept_until([futures[at]])
                    driver.restart()
                driver.kept_until(futures)
                report([each.result() for each in futures])
        finally:
            driver.end()
