"""Secrets are planted everywhere they pass, and looked for everywhere they must not be."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from headrace.broker.access import offline
from headrace.broker.access.store import AccessStore
from headrace.testing.broker import BrokerProcess

ADMIN, ALICE, WRONG = "planted-admin-pw-1b7", "planted-alice-pw-2c8", "planted-wrong-pw-3d9"


@pytest.fixture
def world(tmp_path, secured_settings):
    """A broker with users, a directory for password files, and everything that was printed."""
    data = tmp_path / "data"
    offline.add_user(data, "admin", ADMIN)
    files = tmp_path / "files"
    files.mkdir()
    for name, password in (("admin", ADMIN), ("alice", ALICE), ("wrong", WRONG)):
        (files / name).write_text(password + "\n")
    with BrokerProcess(data, **secured_settings) as process:
        yield World(process, files, secured_settings)


class World:
    def __init__(self, process, files, settings):
        self.process, self.files, self.settings = process, files, settings
        self.printed = []

    def headrace(self, *arguments, user="admin", password=None, expect=0, environment=None):
        command = [sys.executable, "-m", "headrace", *arguments]
        if user is not None:
            command += [
                "--bootstrap",
                self.process.bootstrap,
                "--tls-ca",
                str(self.settings["tls_client_ca"]),
            ]
            command += ["--user", user, "--password-file", str(self.files / (password or user))]
        done = subprocess.run(
            command, capture_output=True, timeout=60, env={**os.environ, **(environment or {})}, input=b""
        )
        text = (done.stdout + done.stderr).decode()
        assert done.returncode == expect, text
        assert "Traceback" not in text
        self.printed.append(text)
        return text


def secrets_of(world):
    """Passwords, the private key's text, and all that SCRAM derived from them."""
    key = Path(world.settings["tls_key"]).read_text().splitlines()
    found = [ADMIN, ALICE, WRONG, *(line for line in key if not line.startswith("---"))]
    for held in AccessStore(world.process.data).load().users.values():
        for credential in held.values():
            for secret in (credential.salt, credential.stored_key, credential.server_key):
                found += [base64.b64encode(secret).decode(), secret.hex()]
    return found


def test_secrets_stay_where_they_belong(world):
    world.headrace("users", "add", "alice", "--new-password-file", str(world.files / "alice"))
    world.headrace("users", "list", "--json")
    world.headrace("topics", "create", "orders")
    listed = json.loads(world.headrace("topics", "list", "--json"))["topics"]
    assert [each["size_bytes"] for each in listed if each["topic"] == "orders"] == [0]
    world.headrace("acls", "add", "alice", "--operation", "read", "--topic", "orders")
    assert "orders" in world.headrace("acls", "list", "--of", "alice")
    world.headrace("tail", "orders", "--no-follow", user="alice")
    world.headrace("topics", "delete", "orders", "--yes", user="alice", expect=1)
    failed = world.headrace("topics", "list", user="alice", password="wrong", expect=1)
    assert "wrong user or password" in failed
    world.headrace("users", "add", "--help", user=None, environment={"HEADRACE_PASSWORD": ALICE})
    world.headrace("broker", "--help", user=None, environment={"HEADRACE_NEW_PASSWORD": ALICE})
    world.headrace("users", "list", "--data", str(world.process.data), user=None)
    world.headrace(
        "users", "add", "x", "--data", str(world.process.data), "--new-password-file",
        str(world.files / "alice"), user=None, expect=2,
    )  # fmt: skip

    admin = AdminClient(
        {
            "bootstrap.servers": world.process.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "admin",
            "sasl.password": ADMIN,
            "ssl.ca.location": str(world.settings["tls_client_ca"]),
        }
    )
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    configs = admin.describe_configs([resource])[resource].result(20)
    answers = json.dumps({name: str(entry.value) for name, entry in configs.items()})
    arguments = Path(f"/proc/{world.process.pid}/cmdline")
    command_line = arguments.read_bytes().decode() if arguments.exists() else ""
    secrets = secrets_of(world)
    users_file = world.process.data / "access.json"
    world.process.stop()

    places = {
        "what commands printed": "\n".join(world.printed),
        "the broker's log": world.process.output(),
        "DescribeConfigs": answers,
        "the broker's arguments": command_line,
    }
    for path in world.process.data.rglob("*"):
        if path.is_file() and path != users_file:
            places[str(path)] = path.read_bytes().decode(errors="replace")
    found = [(where, secret) for where, text in places.items() for secret in secrets if secret in text]
    assert found == []
    assert "login from 127.0.0.1" in places["the broker's log"], "the log is the one that was looked at"
    kept = users_file.read_text()
    assert not [password for password in (ADMIN, ALICE, WRONG) if password in kept]
    assert users_file.stat().st_mode & 0o777 == 0o600


def test_a_password_is_wanted_when_a_user_is_named(world):
    command = [sys.executable, "-m", "headrace", "topics", "list", "--user", "admin", "--json"]
    command += ["--bootstrap", world.process.bootstrap]
    done = subprocess.run(command, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert "HEADRACE_PASSWORD" in json.loads(done.stderr)["error"]
    environment = {**os.environ, "HEADRACE_PASSWORD": ADMIN}
    environment["HEADRACE_TLS_CA"] = str(world.settings["tls_client_ca"])
    done = subprocess.run(command, capture_output=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr


def test_the_broker_refuses_to_listen_to_the_world_unless_told_so(tmp_path):
    command = [sys.executable, "-m", "headrace", "broker", "--data", str(tmp_path), "--listen", "0.0.0.0:0"]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert done.returncode == 2
    assert b"--allow-unauthenticated" in done.stderr
    told = subprocess.Popen([*command, "--allow-unauthenticated"], stdout=subprocess.PIPE)
    try:
        assert b"listening on" in told.stdout.readline()
    finally:
        told.terminate()
        told.wait(30)
        told.stdout.close()


def test_a_users_name_and_removal_on_the_command_line(world):
    world.headrace("users", "add", "alice", "--new-password-file", str(world.files / "alice"))
    assert "not allowed" in world.headrace("users", "list", user="alice", expect=1)
    assert "not allowed" in world.headrace("acls", "list", user="alice", expect=1)
    world.headrace("acls", "remove", "alice", "--operation", "read", "--topic", "nothing", expect=1)
    world.headrace("users", "remove", "alice", "--yes")
    world.headrace("users", "remove", "alice", "--yes", expect=1)
    assert "alice" not in world.headrace("users", "list")
