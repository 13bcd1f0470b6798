"""Captures and followers as the API has them."""

import orjson
import pytest

from headrace.console.ask.catalogs import CatalogEntry
from headrace.console.routes.captures import described_capture, described_follower, snapshot_share

NOW_MS = 1_000_000
CAPTURE = {"name": "shop", "url": "postgresql://me@db/shop?password=env:SHOP_PASSWORD"}
STATUS = {
    "state": "snapshot",
    "at_ms": NOW_MS - 1_000,
    "connector": "postgresql",
    "error": None,
    "error_at_ms": None,
    "changes": 7,
    "last_change_ms": 3,
    "reconnects": 1,
    "lag": {"bytes": 10, "seconds": 0.5, "transactions": 2, "changes": None, "held_bytes": 30},
    "tables": {
        "public.b": {
            "phase": "rows",
            "rows": 5,
            "total": 10,
            "rows_per_s": 1.0,
            "seconds_left": 5.0,
            "share": 0.5,
        },
        "public.a": {
            "phase": "done",
            "rows": 9,
            "total": None,
            "rows_per_s": None,
            "seconds_left": None,
            "share": 1.0,
        },
    },
}


def described(**fields):
    return described_capture("shop", CatalogEntry(**{"spec": CAPTURE, "status": STATUS, **fields}), NOW_MS)


def test_a_capture_shows_its_lag_and_tables_and_nothing_of_its_password():
    found = described()
    assert found["source"] == "postgresql://me@db/shop"
    assert b"SHOP_PASSWORD" not in orjson.dumps(found)
    assert (found["state"], found["snapshot_share"]) == ("snapshot", 0.75)
    assert found["lag"] == STATUS["lag"]
    assert [each["table"] for each in found["tables"]] == ["public.a", "public.b"]
    assert found["tables"][1]["seconds_left"] == 5.0


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"status": None}, "not running"),
        ({"status": {**STATUS, "at_ms": NOW_MS - 60_000}}, "not running"),
        ({"status": {**STATUS, "at_ms": NOW_MS - 60_000}, "switch": {"paused": True}}, "paused"),
    ],
)
def test_a_capture_that_nobody_runs_says_so(fields, state):
    assert described(**fields)["state"] == state


def test_a_share_that_is_not_known_of_one_table_is_not_known_of_all():
    assert snapshot_share([]) is None
    assert snapshot_share([{"share": 1.0}, {"share": None}]) is None


def test_a_follower_shows_where_its_rows_are_and_nothing_of_its_password():
    into = {
        "kind": "redis",
        "url": "redis://cache:6379/1?password=env:CACHE",
        "options": {"prefix": "customer:"},
    }
    said = {
        "state": "following",
        "at_ms": NOW_MS,
        "positions": {"0": 5},
        "behind": 3,
        "dead": 1,
        "error": "no topic",
    }
    entry = CatalogEntry(spec={"topic": "t", "into": into}, status=said)
    found = described_follower("cache", entry, NOW_MS)
    assert (found["target"], found["place"]) == ("redis://cache:6379/1", "customer:")
    assert (found["behind"], found["positions"], found["dead"], found["upserts"]) == (3, {"0": 5}, 1, 0)
    assert found["error"] is None, "it has passed"
    entry.status = {**said, "state": "reconnecting"}
    assert described_follower("cache", entry, NOW_MS)["error"] == "no topic"
    assert b"env:CACHE" not in orjson.dumps(found)
