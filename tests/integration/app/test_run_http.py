"""`headrace run --http`: an application with its console, rebuilt over HTTP while it is read."""

import json
import queue
import signal
import subprocess
import sys
import threading
import time

import pytest
from tests.integration.console.http_client import ask

from headrace.app.status.lock import is_running
from headrace.app.status.status import read_status

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.xdist_group("applications"),
    pytest.mark.timeout(600),
]

TIMEOUT_S = 240
APPLICATION = """
from headrace import App, agg, tumbling

app = App("tally")
events = app.stream("{topic}", schema="place string, amount double, at long", event_time="at",
                    lateness="1 second", partitions=2, late_alert="1 %")


@app.view
def counts():
    return events.window(tumbling("10 seconds"), by="place").agg(n=agg.count(), total=agg.sum("amount"))
"""


class Run:
    """`headrace run` as a user starts it, and what it says."""

    def __init__(self, file, data, bootstrap, errors) -> None:
        self._queue: queue.SimpleQueue[dict] = queue.SimpleQueue()
        self.batches: list[int] = []  # the records of each that had some
        command = ["run", str(file), "--data", str(data), "--bootstrap", bootstrap, "--json"]
        command += ["--max-records-per-batch", "100", "--max-bytes-per-batch", "12000"]
        with errors.open("wb") as messages:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace", *command, "--http", "127.0.0.1:0", "--until-stdin-closes"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            print(line.decode(), end="")
            said = json.loads(line)
            self._queue.put(said)
            if said.get("records"):
                self.batches.append(said["records"])

    def said(self, text: str) -> str:
        """The first message from now on that holds the text."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            line = self._queue.get(timeout=max(0.1, deadline - time.monotonic()))
            if text in line.get("message", ""):
                return line["message"]


def wait_for(condition):
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.2)
    return found


def events(base_ms: int) -> list[dict]:
    """Of three windows, the last of which silence closes; a late one, and one that is no event."""
    made = [
        {"place": "ab"[number % 2], "amount": number / 8, "at": base_ms + 100 * number}
        for number in range(300)
    ]
    return [*made, {"place": "a", "amount": 1.0, "at": base_ms - 600_000}, "no event"]


def test_an_application_is_seen_and_rebuilt_over_http_while_its_views_are_read(our_log, tmp_path):
    topic, data = f"tally-{time.time_ns()}", tmp_path / "data"
    file = tmp_path / "tally.py"
    file.write_text(APPLICATION.format(topic=topic))
    run = Run(file, data, our_log.bootstrap_servers, tmp_path / "errors")
    try:
        url = run.said("console: ").split()[1].rstrip("/")

        def get(path, **query):
            return ask(url, "GET", path, **query)

        run.said("running tally")
        base_ms = (int(time.time()) // 60 - 60) * 60_000
        sent = ask(
            url,
            "POST",
            f"/v1/topics/{topic}/records",
            {"records": [{"value": each, "partition": 0} for each in events(base_ms)]},
        )
        assert sent.status == 200
        token = sent.json["token"]
        before = wait_for(
            lambda: (
                (answer := get("/v1/views/counts/rows", token=token, wait_ms=30_000)).status == 200
                and len(answer.json["rows"]) == 6
                and answer.json
            )
        )
        assert {each["n"] for each in before["rows"]} == {50}
        wait_for(lambda: sum(run.batches) == 302)
        assert max(run.batches) == 100

        state = get("/v1/pipelines").json
        (query,) = state["queries"]
        assert (state["running"], query["state"], query["positions"]["0"]) == (True, "running", 302)
        silent = {each: next_ for each, next_ in query["positions"].items() if each != "0"}
        assert silent and set(silent.values()) == {0}, query["positions"]
        assert {each["kind"] for each in state["nodes"]} >= {"topic", "query", "window", "view"}
        late = get("/v1/late").json
        assert [each["dropped"] for each in late["windows"]] == [1]
        assert late["views"][0]["counters"]["on_time"] + 2 == 302
        assert len(get("/v1/dead-letters", topic="tally.dead").json["letters"]) == 1

        # Rebuilt: whoever reads meanwhile sees the whole view, old or new.
        seen: list[tuple[str, list]] = []
        reading, done = threading.Event(), threading.Event()

        def read() -> None:
            while not done.wait(0.2):
                page = get("/v1/views/counts/rows").json
                seen.append((page["reflected"]["query_id"], page["rows"]))
                reading.set()

        reader = threading.Thread(target=read)
        reader.start()
        reading.wait(TIMEOUT_S)
        asked = ask(url, "POST", "/v1/pipelines/rebuild", {"confirm": "tally"})
        assert asked.status == 202
        run.said("rebuild requested by")
        rebuilt = wait_for(
            lambda: (found := get("/v1/pipelines").json["rebuild"]) and found["done_at"] and found
        )
        assert rebuilt["progress"] == 1
        after = wait_for(
            lambda: (
                (page := get("/v1/views/counts/rows").json)["reflected"]["query_id"]
                != before["reflected"]["query_id"]
                and page
            )
        )
        wait_for(lambda: seen[-1][0] == after["reflected"]["query_id"])
        done.set()
        reader.join()
        assert after["rows"] == before["rows"]
        assert after["reflected"]["counters"] == before["reflected"]["counters"]
        assert {query for query, _ in seen} == {
            before["reflected"]["query_id"],
            after["reflected"]["query_id"],
        }
        assert all(rows == before["rows"] for _, rows in seen)
        # What the old query told of is not told again.
        assert len(get("/v1/dead-letters", topic="tally.dead").json["letters"]) == 1
        assert [each["dropped"] for each in get("/v1/late").json["windows"]] == [1]
        assert list((data / "rebuilding").iterdir()) == []

        already = len(run.batches)
        large = {"place": "c", "amount": 1.0, "at": base_ms + 200_000, "note": "x" * 1_000}
        records = [{"value": large, "partition": 0}] * 40
        assert ask(url, "POST", f"/v1/topics/{topic}/records", {"records": records}).status == 200
        wait_for(lambda: sum(run.batches[already:]) == 40)
        assert max(run.batches[already:]) < 15, "12,000 bytes, of at least 1,000 each, by estimate"

        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(TIMEOUT_S) == 0
    finally:
        run.process.kill()
        run.process.wait()
    assert not is_running(data)
    assert [each.state for each in read_status(data).queries.values()] == ["stopped"]
