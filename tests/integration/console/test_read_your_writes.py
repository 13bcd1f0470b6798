"""Read your own writes, through the API, on a real driver: what a token promises, and why it is needed.

Each trial writes a record and reads the view for it at once. With the token every answer
must hold the write, whatever the driver does meanwhile; "not yet" is an answer too, and
is asked again. Without it the same reads come too early, and are counted.
"""

import random
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

import pytest
from tests.integration.console.http_client import ask

from headrace.client import producer
from headrace.testing.console import ConsoleProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

DEADLINE_S = 600
APPLICATION = """
from headrace import App

app = App("ryw")
notes = app.stream("{topic}", schema="id string, text string", partitions=3)


@app.view(key="id")
def written():
    return notes
"""


class Driver:
    """`headrace run` without a console of its own, which a test may kill and start again."""

    def __init__(self, folder, bootstrap, topic) -> None:
        self.data = folder / "data"
        file = folder / "application.py"
        file.write_text(APPLICATION.format(topic=topic))
        self._command = [sys.executable, "-m", "headrace", "run", str(file), "--data", str(self.data)]
        self._command += ["--bootstrap", bootstrap, "--no-http", "--json", "--until-stdin-closes"]
        self._messages = folder / "driver.messages"
        self.start()

    def start(self) -> None:
        with self._messages.open("ab") as messages:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=messages, stderr=messages
            )

    def restart(self) -> None:
        """Kills it where it stands, and starts it again."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.start()

    def kept_until(self, *futures) -> None:
        """Waits for these, and starts it again should it give up, as a supervisor would."""
        while wait(futures, timeout=1).not_done:
            if self.process.poll() is not None:
                self.process.stdin.close()
                self.start()

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait(120)


@dataclass
class Trial:
    """What a read found: with the token, and with none a moment before."""

    found: bool
    found_without: bool
    not_yet: int


class Load:
    """A producer that writes to the same topic all the time."""

    def __init__(self, log, topic, per_s) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(log, topic, per_s))
        self._thread.start()

    def _run(self, log, topic, per_s) -> None:
        client, pause = producer(log), 20 / per_s
        while not self._stop.wait(pause):
            for _ in range(20):
                client.produce(topic, b'{"id":"%s","text":"load"}' % uuid.uuid4().hex.encode())
            client.poll(0)
        client.flush(60)

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


def tried(url, topic) -> Trial:
    """Writes a record with a new id, and looks for it in the view."""
    ident, deadline = uuid.uuid4().hex, time.monotonic() + DEADLINE_S
    written = ask(
        url, "POST", f"/v1/topics/{topic}/records", {"value": {"id": ident, "text": "mine"}, "key": ident}
    )
    assert written.status == 200, written.body
    early = ask(url, "GET", "/v1/views/written/rows", id=ident)
    not_yet = 0
    while True:
        answer = ask(
            url, "GET", "/v1/views/written/rows", id=ident, token=written.json["token"], wait_ms=20_000
        )
        if answer.status == 200:
            return Trial(bool(answer.json["rows"]), bool(early.status == 200 and early.json["rows"]), not_yet)
        assert answer.status in (409, 503), answer.body
        assert time.monotonic() < deadline, f"the view never reflected it: {answer.body!r}"
        not_yet += 1


def trials(our_log, make_topic, tmp_path, *, count, readers, restart) -> list[Trial]:
    topic = make_topic(f"ryw-{uuid.uuid4().hex[:8]}", 3)
    driver = Driver(tmp_path, our_log.bootstrap_servers, topic)
    load = Load(our_log, topic, per_s=200)
    try:
        with ConsoleProcess(our_log.bootstrap_servers, data=driver.data) as console:
            url, deadline = console.url, time.monotonic() + DEADLINE_S
            while ask(url, "GET", "/v1/views/written/rows", limit=1).status != 200:
                assert time.monotonic() < deadline, driver._messages.read_text()[-3000:]
                assert driver.process.poll() is None, driver._messages.read_text()[-3000:]
                time.sleep(0.2)
            with ThreadPoolExecutor(readers) as pool:
                futures = [pool.submit(tried, url, topic) for _ in range(count)]
                if restart:
                    driver.kept_until(futures[random.randrange(count // 4, count // 2)])
                    driver.restart()
                driver.kept_until(*futures)
                return [each.result() for each in futures]
    finally:
        load.end()
        driver.end()


def report(found: list[Trial]) -> None:
    missed = sum(not each.found_without for each in found)
    print(
        f"{len(found)} trials: {sum(each.found for each in found)} found with the token, "
        f"{missed} missed without it, {sum(each.not_yet for each in found)} answers of not yet"
    )
    assert all(each.found for each in found)
    assert missed > 0, "without the token every read found its write: the trials show nothing"


@pytest.mark.slow
def test_a_read_with_the_token_of_a_write_finds_it(our_log, make_topic, tmp_path):
    report(trials(our_log, make_topic, tmp_path, count=40, readers=8, restart=False))


@pytest.mark.slow
def test_a_thousand_reads_find_their_writes_under_load_and_over_a_restart(our_log, make_topic, tmp_path):
    report(trials(our_log, make_topic, tmp_path, count=1_000, readers=100, restart=True))
