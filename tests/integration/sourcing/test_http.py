"""Commands over HTTP: answered as in Python, and described from their types."""

import json
import os
import sys
import urllib.error
import urllib.request

import pytest
from tests.integration.sourcing.bank import app
from tests.integration.sourcing.serving import ACCOUNTS, serving

from headrace.app.options import RunOptions
from headrace.app.run.serving import _description
from headrace.app.status.description import write_description
from headrace.client import Connection
from headrace.testing.broker import running_broker
from headrace.testing.console import ConsoleProcess


@pytest.fixture(scope="module")
def console(tmp_path_factory):
    folder = tmp_path_factory.mktemp("console")
    with pytest.MonkeyPatch.context() as environment, running_broker(folder / "log") as broker:
        # The console asks the application's code in a process of its own, which finds the same modules.
        environment.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        bootstrap = f"127.0.0.1:{broker.port}"
        options = RunOptions(data=folder, file=ACCOUNTS)
        described = _description(app, options, Connection(bootstrap_servers=bootstrap))
        write_description(folder, described)
        with (
            serving(bootstrap, app.entity_types, app.name),
            ConsoleProcess(bootstrap, data=folder) as process,
        ):
            yield process


def post(console, path, body):
    request = urllib.request.Request(
        f"{console.url}/v1/entities/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_command_is_accepted_rejected_or_in_conflict(console):
    status, found = post(console, "account/a-1/commands/Deposit?command_id=x", {"amount": 5})
    assert (status, found["outcome"], found["version"]) == (200, "accepted", 1)
    assert found["events"] == [{"type": "Deposited", "version": 1, "data": {"amount": 5}}]
    status, found = post(console, "account/a-1/commands/Deposit?command_id=x", {"amount": 5})
    assert (status, found["repeated"], found["version"]) == (200, True, 1)
    status, found = post(console, "account/a-1/commands/Withdraw", {"amount": 9})
    assert (status, found["rule"], found["detail"]) == (422, "insufficient-funds", "the balance is 5")
    status, found = post(console, "account/a-1/commands/Withdraw?expected_version=4", {"amount": 1})
    assert (status, found["version"]) == (409, 1)
    status, found = post(console, "account/a-1/commands/Withdraw", {"amount": "1"})
    assert (status, found["rule"]) == (422, "invalid-command")


def test_what_there_is_not_is_named(console):
    status, found = post(console, "acount/a-1/commands/Deposit", {})
    assert status == 404 and "did you mean 'account'" in found["detail"]
    status, found = post(console, "account/a-1/commands/Depose", {})
    assert status == 404 and "did you mean 'Deposit'" in found["detail"]


def test_every_command_has_a_path_in_the_document_with_the_types_of_its_fields(console):
    with urllib.request.urlopen(f"{console.url}/openapi.json") as response:
        paths = json.load(response)["paths"]
    operation = paths["/v1/entities/account/{id}/commands/Deposit"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"] == {"amount": {"type": "integer"}} and schema["required"] == ["amount"]
    assert "type" not in [each["name"] for each in operation["parameters"]]


def get(console, path):
    try:
        with urllib.request.urlopen(f"{console.url}/v1/entities{path}", timeout=120) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_entities_are_listed_by_type_and_by_pages(console):
    for each in ("l-1", "l-2", "l-3"):
        assert post(console, f"account/{each}/commands/Deposit", {"amount": 1})[0] == 200
    status, found = get(console, "")
    assert (
        status == 200
        and found["types"][0]["type"] == "account"
        and "Deposit" in found["types"][0]["commands"]
    )
    status, first = get(console, "/account?prefix=l-&limit=2")
    assert first["entities"] == [{"entity": "l-1", "version": 1}, {"entity": "l-2", "version": 1}]
    assert (first["count"], first["next"]) == (3, "l-2")
    status, last = get(console, f"/account?prefix=l-&after={first['next']}")
    assert [each["entity"] for each in last["entities"]] == ["l-3"] and last["next"] is None
    assert get(console, "/acount")[0] == 404


def test_a_history_has_every_event_with_its_command_and_the_state_that_it_left(console):
    post(
        console, "account/h-1/commands/Deposit?command_id=one&cause=letter&correlation=case-7", {"amount": 5}
    )
    post(console, "account/h-1/commands/Move?command_id=two", {"amounts": [2, -4]})
    status, found = get(console, "/account/h-1/history")
    assert status == 200 and found["version"] == 3
    first = found["events"][0]
    assert (first["type"], first["data"], first["cause"], first["correlation"]) == (
        "Deposited",
        {"amount": 5},
        "letter",
        "case-7",
    )
    assert [each["command"] for each in found["events"]] == [
        {"id": "one", "name": "Deposit"},
        {"id": "two", "name": "Move"},
        {"id": "two", "name": "Move"},
    ]
    assert [each["version"] for each in get(console, "/account/h-1/history?limit=2")[1]["events"]] == [2, 3]
    status, found = get(console, "/account/h-1/history?states=true&from=2")
    assert status == 200, found
    assert [each["state"] for each in found["events"]] == [
        {"balance": 7, "changes": 2},
        {"balance": 3, "changes": 3},
    ]
    assert found["events"][1]["changed"] == {"balance": [7, 3], "changes": [2, 3]}
    assert get(console, "/account/h-1/state")[1]["state"] == {"balance": 3, "changes": 3}
    assert get(console, "/account/h-1/state?version=1")[1]["state"] == {"balance": 5, "changes": 1}
    at = first["at"].replace("+", "%2B")
    assert get(console, f"/account/h-1/state?time={at}")[1]["version"] >= 1
    assert get(console, "/account/h-1/state?version=4")[0] == 404
    assert get(console, "/account/nobody/state")[0] == 404
    assert get(console, "/account/nobody/history")[1] == {
        "type": "account",
        "entity": "nobody",
        "topic": "bank.account.events",
        "version": 0,
        "events": [],
    }
