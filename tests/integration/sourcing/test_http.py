"""Commands over HTTP: answered as in Python, and described from their types."""

import json
import urllib.error
import urllib.request

import pytest
from tests.integration.sourcing.bank import app
from tests.integration.sourcing.serving import serving

from headrace.app.options import RunOptions
from headrace.app.run.serving import _description
from headrace.app.status.description import write_description
from headrace.client import Connection
from headrace.testing.broker import running_broker
from headrace.testing.console import ConsoleProcess


@pytest.fixture(scope="module")
def console(tmp_path_factory):
    folder = tmp_path_factory.mktemp("console")
    with running_broker(folder / "log") as broker:
        bootstrap = f"127.0.0.1:{broker.port}"
        described = _description(app, RunOptions(data=folder), Connection(bootstrap_servers=bootstrap))
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
