"""A rebuilt view over HTTP: what differs from the one that is shown, and the decision to show it."""

import pytest
from tests.integration.console.conftest import NEW_YEAR, row
from tests.integration.console.http_client import ask
from tests.integration.console.shop import Shop, compared

from headrace.client import Connection
from headrace.console.context.application import ApplicationFolder
from headrace.console.problems import ProblemError
from headrace.testing.console import ConsoleProcess
from headrace.views.rebuilt import Rebuilds

REBUILT, SWITCH = "/v1/views/revenue/rebuilt", "/v1/views/revenue/switch"
FOUND = compared(
    [row("eu", 0, 1), row("eu", 1, 2), row("us", 0, 3)],
    [row("eu", 0, 1), row("eu", 1, 20), row("ä", 0, 4)],
)


@pytest.fixture
def kept(our_log, make_topic, tmp_path):
    """A shop of this test alone, and its console."""
    shop = Shop(tmp_path, our_log.bootstrap_servers)
    with ConsoleProcess(our_log.bootstrap_servers, data=shop.data) as process:
        yield shop, lambda method, path, body=None, **query: ask(process.url, method, path, body, **query)


def test_a_rebuilt_view_is_compared_and_shown_by_decision(kept):
    shop, call = kept
    rebuilds = Rebuilds(shop.data)
    none = call("GET", REBUILT)
    assert (none.status, none.json["type"]) == (404, "urn:headrace:problem:no-rebuild")
    assert call("POST", SWITCH, {"rebuild": "q-2"}).status == 404

    rebuilds.hold("revenue", "q-2")
    building = call("GET", REBUILT).json
    assert building == {"view": "revenue", "rebuild": "q-2", "state": "rebuilding", "comparison": None}
    early = call("POST", SWITCH, {"rebuild": "q-2"})
    assert (early.status, early.json["type"]) == (409, "urn:headrace:problem:not-compared")

    rebuilds.note("revenue", "q-2", FOUND)
    found = call("GET", REBUILT).json
    assert found["state"] == "waiting"
    comparison = found["comparison"]
    assert (comparison["shown_rows"], comparison["rebuilt_rows"]) == (3, 3)
    assert (comparison["changed"], comparison["added"], comparison["removed"]) == (1, 1, 1)
    assert (comparison["shown_at"], comparison["rebuilt_at"]) == (
        {"orders": {"0": 4}},
        {"orders": {"0": 5}},
    )
    changed = next(each for each in comparison["differences"] if each["shown"] and each["rebuilt"])
    assert changed["key"] == {"region": "eu", "minute": f"{NEW_YEAR:%Y-%m-%d}T00:01:00.000000Z"}
    assert (changed["shown"]["orders"], changed["rebuilt"]["orders"]) == (2, 20)
    assert len(call("GET", REBUILT, limit=1).json["comparison"]["differences"]) == 1

    done = call("POST", SWITCH, {"rebuild": "q-2"})
    assert (done.status, done.json["state"]) == (202, "switching")
    assert rebuilds.read("revenue").is_approved
    assert call("GET", REBUILT).json["state"] == "switching"
    entry = call("GET", "/v1/audit", limit=1).json["entries"][0]
    assert (entry["action"], entry["notes"]) == (
        "POST /v1/views/{view}/switch",
        {"rebuild": "q-2"},
    )


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"rebuild": "q-1"}, 409, "not-compared"),
        ({"rebuild": 2}, 400, "bad-body"),
        ({}, 400, "bad-body"),
        ([], 400, "bad-body"),
    ],
)
def test_only_the_rebuild_that_was_compared_is_shown(kept, body, status, kind):
    shop, call = kept
    Rebuilds(shop.data).note("revenue", "q-2", FOUND)
    refused = call("POST", SWITCH, body)
    assert (refused.status, refused.json["type"]) == (status, f"urn:headrace:problem:{kind}")
    assert not Rebuilds(shop.data).read("revenue").is_approved


def test_a_view_that_does_not_exist_has_no_rebuild(kept):
    _, call = kept
    assert call("GET", "/v1/views/nope/rebuilt").status == 404
    assert call("POST", "/v1/views/nope/switch", {"rebuild": "q"}).status == 404


def test_nothing_is_decided_in_a_copy_of_the_data_folder(tmp_path):
    connection = Connection(bootstrap_servers="127.0.0.1:1")
    ApplicationFolder(tmp_path, connection).check_is_original()
    with pytest.raises(ProblemError, match="a copy of the application's data folder") as refused:
        ApplicationFolder(tmp_path, connection, is_copy=True).check_is_original()
    assert refused.value.problem.status == 409
