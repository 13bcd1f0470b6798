"""What captures and followers say of themselves, as alerts."""

import orjson
import pytest

from headrace.console.ask.alerts.catalog_rules import capture_alerts, follower_alerts
from headrace.console.ask.catalogs import catalog_statuses, fold_catalog

NOW = 1_000.0
FINE = {"state": "streaming", "at_ms": 999_000, "error": None, "error_at_ms": None, "lag": {"bytes": 10}}
FOLLOWS = {
    "state": "following",
    "at_ms": 999_000,
    "topic": "t",
    "behind": 0,
    "dead": 0,
    "seconds_behind": None,
}


def kinds(found):
    return [(each["kind"], each["severity"]) for each in found]


def test_whoever_is_fine_raises_no_alert():
    assert capture_alerts({"shop": FINE}, NOW) == follower_alerts({"cache": FOLLOWS}, NOW) == []


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"state": "stopped", "error": "the slot is lost"}, ("capture", "critical")),
        ({"state": "reconnecting", "error": "refused"}, ("capture", "warning")),
        ({"lag": {"bytes": 3 << 30}}, ("capture-held", "warning")),
        ({"at_ms": 900_000}, ("capture-silent", "warning")),
    ],
)
def test_a_capture_that_needs_attention_has_an_alert_with_its_reason(said, expected):
    found = capture_alerts({"shop": {**FINE, **said}}, NOW)
    assert kinds(found) == [expected] and found[0]["detail"] and "shop" in found[0]["title"]
    if "error" in said:
        assert found[0]["detail"] == said["error"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"state": "stopped", "error": "no such database"}, ("follower", "critical")),
        ({"state": "reconnecting", "error": "refused"}, ("follower", "warning")),
        ({"seconds_behind": 90.0, "behind": 7}, ("follower-behind", "warning")),
        ({"dead": 2}, ("follower-dead", "warning")),
        ({"at_ms": 900_000}, ("follower-silent", "warning")),
    ],
)
def test_a_follower_that_needs_attention_has_an_alert_with_its_reason(said, expected):
    found = follower_alerts({"cache": {**FOLLOWS, **said}}, NOW)
    assert kinds(found) == [expected] and found[0]["detail"] and "cache" in found[0]["title"]


def test_a_capture_that_was_paused_may_be_silent():
    assert capture_alerts({"shop": {**FINE, "state": "paused", "at_ms": 0}}, NOW) == []


def test_the_last_status_counts_and_none_of_what_was_removed():
    records = [
        (b"a/spec", b'{"name": "a"}'),
        (b"a/status", orjson.dumps({"n": 1})),
        (b"a/status", orjson.dumps({"n": 2})),
        (b"b/spec", b'{"name": "b"}'),
        (b"b/status", orjson.dumps({"n": 3})),
        (b"b/spec", None),
        (b"c/spec", b'{"name": "c"}'),
        (b"c/status", b"nonsense"),
        (b"c/switch", b"{}"),
        (None, None),
    ]
    entries = {}
    fold_catalog(entries, records[:2])
    fold_catalog(entries, records[2:])
    assert catalog_statuses(entries) == {"a": {"n": 2}}
