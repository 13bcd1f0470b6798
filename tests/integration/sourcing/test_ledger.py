"""examples/09_ledger: double entry, holds and reversals, and statements as of any time."""

import subprocess
import sys
from datetime import UTC, datetime

import pytest
from tests.integration.sourcing.serving import ServerProcess
from tools.pages import REPOSITORY

from headrace.app import import_app
from headrace.testing.broker import BrokerProcess

LEDGER = REPOSITORY / "examples" / "09_ledger"


@pytest.fixture(scope="module")
def ledger():
    return import_app(LEDGER / "app.py")


def test_a_day_in_the_ledger_goes_as_the_example_says(tmp_path, ledger):
    with BrokerProcess(tmp_path) as broker:
        server = ServerProcess(broker.bootstrap, LEDGER / "app.py")
        assert server.wait_ready()["entities"] == ["book"]
        sent = subprocess.run(
            [sys.executable, "send.py"],
            cwd=LEDGER,
            env={"HEADRACE_BOOTSTRAP": broker.bootstrap, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert sent.stdout.splitlines() == [
            "OpenAccount: accepted 1",
            "OpenAccount: accepted 2",
            "OpenAccount: accepted 3",
            "Post: accepted 5",
            "PlaceHold: accepted 6",
            "Post: rejected insufficient-funds",
            "CaptureHold: accepted 9",
            "Post: rejected unbalanced",
            "Reverse: accepted 12",
        ], sent.stderr
        assert server.stop() == 0
        ledger.entities.connect(broker.bootstrap)
        book = ledger.entities.book("b-1")
        now = book.state().state
        assert now.balances == {"cash": -50_000, "alice": 50_000, "shop": 0}
        assert now.reversed == {"h-1"} and not now.holds
        captured = book.history()[8]
        then = book.state(at=datetime.fromtimestamp(captured.at_ms / 1000, UTC)).state
        assert then.balances == {"cash": -50_000, "alice": 20_000, "shop": 30_000}
        assert all(sum(book.state(version=each).state.balances.values()) == 0 for each in (5, 9, 12))


def test_the_events_are_a_stream_that_the_views_read(ledger):
    stream = ledger.entities.book.events
    assert ledger.streams == {"ledger.book.events": stream}
    assert stream.spec.event_time == "at" and "`amount`: bigint" in stream.spec.schema
