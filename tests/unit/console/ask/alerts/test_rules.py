"""Alerts from what the driver left and what the broker said."""

from dataclasses import replace

from headrace.app.status.description import AppDescription
from headrace.app.status.status import AppStatus, QueryStatus
from headrace.console.ask.alerts.rules import driver_alerts, event_alerts

APP = AppDescription(
    app="shop",
    file="shop.py",
    bootstrap="",
    streams=(),
    views=(),
    dead_topic="shop.dead",
    late_topic="shop.late",
    hooks=(),
    nodes=(),
    edges=(),
)
STATUS = AppStatus(pid=1, started_at=1.0, updated_at=50.0, alerts=({"id": "late v", "kind": "late"},))


def event(kind: str, at_s: float, partition: int = 0, **more):
    return {"kind": kind, "group": "g", "topic": "t", "partition": partition, "at_ms": 1000 * at_s, **more}


def test_a_running_application_tells_its_own_alerts_and_a_stopped_one_that_it_stopped():
    assert [each["id"] for each in driver_alerts(APP, STATUS, running=True)] == ["late v"]
    (stopped,) = driver_alerts(APP, STATUS, running=False)
    assert (stopped["kind"], stopped["since"]) == ("driver", 50.0)
    assert "headrace run shop.py" in stopped["next"]
    assert [each["kind"] for each in driver_alerts(APP, None, running=False)] == ["driver"]


def test_a_query_that_failed_for_good_is_critical():
    failed = QueryStatus(state="failed", error="disk full", updated_at=7.0)
    status = replace(STATUS, queries={"orders": failed, "clicks": QueryStatus(state="running")})
    found = driver_alerts(APP, status, running=True)
    assert [(each["kind"], each["severity"]) for each in found[:1]] == [("query", "critical")]
    assert found[0]["detail"] == "disk full"


def test_a_group_near_retention_is_an_alert_until_it_has_caught_up():
    near = event("near-retention", 10, share=0.9)
    (alert,) = event_alerts([near], now=20)
    assert (alert["kind"], alert["since"], alert["value"]) == ("near-retention", 10.0, 0.9)
    assert event_alerts([near, event("caught-up", 12)], now=20) == []
    assert len(event_alerts([near, event("caught-up", 12, partition=1)], now=20)) == 1


def test_a_fall_is_told_for_an_hour():
    fell = event("fell-off", 10, records=5)
    assert [each["severity"] for each in event_alerts([fell], now=20)] == ["critical"]
    assert event_alerts([fell], now=10 + 3600) == []
