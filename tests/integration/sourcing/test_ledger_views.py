"""examples/09_ledger: balances, large payments and the audit trail are made from the same events."""

import json
import sys

import pytest
from tools.pages import REPOSITORY

from headrace.app import import_app
from headrace.sourcing.partition import EntityPartition
from headrace.sourcing.records import Command, Topics
from headrace.sourcing.values import to_json
from headrace.testing import run_app

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

START_MS = 1_767_603_600_000  # 2026-01-05T09:00:00Z


def test_three_views_show_the_same_history(spark):
    app = import_app(REPOSITORY / "examples" / "09_ledger" / "app.py")
    kind = app.entity_types["book"]
    ledger = sys.modules[kind.decide.__module__]
    day = [
        ledger.OpenAccount("cash", may_go_negative=True),
        ledger.OpenAccount("alice"),
        ledger.Post("p-1", (ledger.Leg("cash", -250_000), ledger.Leg("alice", 250_000))),
        ledger.Post("p-2", (ledger.Leg("alice", -150_000), ledger.Leg("cash", 150_000))),
        ledger.Reverse("p-2", "r-1"),
    ]
    owned = EntityPartition(kind, Topics.of("ledger", "book"), 0)
    commands = [
        Command(entity="b-1", name=type(each).__name__, data=to_json(each), id=f"c-{at}", by="ann", offset=at)
        for at, each in enumerate(day)
    ]
    events = owned.decide(commands, START_MS).events
    with run_app(app, start="2026-01-05T09:00:00Z", spark=spark) as run:
        for event in events:
            run.send("ledger.book.events", json.loads(event.value()))
        assert {each["account"]: each["balance"] for each in run.rows("balances")} == {
            "cash": -250_000,
            "alice": 250_000,
        }
        audit = sorted(run.rows("audit"), key=lambda each: each["version"])
        assert [(each["version"], each["type"], each["by"]) for each in audit] == [
            (event.version, event.type, "ann") for event in events
        ]
        run.stop_input()
        run.advance("2 hours")
        large = {each["account"]: each["payments"] for each in run.rows("large_payments")}
        assert large == {"cash": 2, "alice": 1}
