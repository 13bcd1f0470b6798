"""Secrets are planted everywhere they pass, and looked for everywhere they must not be."""

import base64
import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from ready_command import run_command

from headrace.broker.access import offline
from headrace.broker.access.store import AccessStore
from headrace.testing.broker import BrokerProcess
from headrace.wire import Api, encode_request

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
        command = [*arguments]
        if user is not None:
            command += [
                "--bootstrap",
                self.process.bootstrap,
                "--tls-ca",
                str(self.settings["tls_client_ca"]),
            ]
            command += ["--user", user, "--password-file", str(self.files / (password or user))]
        with mock.patch.dict(os.environ, environment or {}):
            done = run_command(command)
        text = (done.stdout + done.stderr).decode()
        assert done.returncode == expect, text
        assert "Traceback" not in text
        self.printed.append(text)
        return text

    def json(self, *arguments, **options):
        """What a command answers to programs; nothing else may be printed."""
        return json.loads(self.headrace(*arguments, "--json", **options))

    def plain_login(self, spoiled=bytes):
        """What the broker answers to alice's login by PLAIN, until it closes the connection."""
        context = ssl.create_default_context(cafile=self.settings["tls_client_ca"])
        address = ("127.0.0.1", self.process.port)
        with (
            socket.create_connection(address, timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as opened,
        ):
            opened.sendall(encode_request(Api.SASL_HANDSHAKE, 1, 1, "test", {"mechanism": "PLAIN"}))
            assert len(opened.recv(4096)) > 4
            login = {"auth_bytes": f"\0alice\0{WRONG}".encode()}
            opened.sendall(spoiled(encode_request(Api.SASL_AUTHENTICATE, 2, 2, "test", login)))
            if spoiled is cut_short:  # nobody would answer: hang up
                socket.socket.shutdown(opened, socket.SHUT_WR)
            answer = b""
            with contextlib.suppress(ssl.SSLError, ConnectionResetError):
                while received := opened.recv(4096):
                    answer += received
        return answer.decode(errors="replace")


def cut_short(frame):
    """Without its last byte, which stands behind the password: more is announced than comes."""
    return frame[:-1]


def overstated(frame):
    """A whole frame, in which the login claims to be longer than the frame."""
    frame[frame.index(b"\0alice") - 1] += 40
    return frame


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
    added = world.json("users", "add", "alice", "--new-password-file", str(world.files / "alice"))
    assert added == {"user": "alice", "added": True}
    assert [each["user"] for each in world.json("users", "list")["users"]] == ["admin", "alice"]
    world.headrace("topics", "create", "orders")
    listed = world.json("topics", "list")["topics"]
    assert [each["size_bytes"] for each in listed if each["topic"] == "orders"] == [0]
    entry = {
        "user": "User:alice",
        "permission": "allow",
        "operation": "read",
        "resource": "topic",
        "name": "orders",
        "pattern": "literal",
        "host": "*",
    }
    allowed = ("alice", "--operation", "read", "--topic", "orders")
    assert world.json("acls", "add", *allowed) == {"acls": [entry]}
    assert world.json("acls", "list", "--of", "alice") == {"acls": [entry]}
    world.headrace("tail", "orders", "--no-follow", user="alice")
    world.headrace("topics", "delete", "orders", "--yes", user="alice", expect=1)
    failed = world.headrace("topics", "list", user="alice", password="wrong", expect=1)
    assert "wrong user or password" in failed
    assert world.json("acls", "remove", *allowed) == {"acls": [entry]}
    answered = [world.plain_login(spoiled) for spoiled in (bytes, cut_short, overstated)]
    assert "wrong user or password" in answered[0]
    assert answered[1:] == ["", ""]
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
        "answers to logins": "\n".join(answered),
        "the broker's log": world.process.output(),
        "DescribeConfigs": answers,
        "the broker's arguments": command_line,
    }
    for path in world.process.data.rglob("*"):
        if path.is_file() and path != users_file:
            places[str(path)] = path.read_bytes().decode(errors="replace")
    found = [(where, secret) for where, text in places.items() for secret in secrets if secret in text]
    assert found == []
    for line in ("login from 127.0.0.1", "closing the connection from 127.0.0.1"):
        assert line in places["the broker's log"], "the log is the one that was looked at"
    kept = users_file.read_text()
    assert not [password for password in (ADMIN, ALICE, WRONG) if password in kept]
    assert users_file.stat().st_mode & 0o777 == 0o600


def test_a_password_is_wanted_when_a_user_is_named(world):
    command = ["topics", "list", "--user", "admin", "--json", "--bootstrap", world.process.bootstrap]
    done = run_command(command)
    assert done.returncode == 2
    assert "HEADRACE_PASSWORD" in json.loads(done.stderr)["error"]
    environment = {"HEADRACE_PASSWORD": ADMIN, "HEADRACE_TLS_CA": str(world.settings["tls_client_ca"])}
    with mock.patch.dict(os.environ, environment):
        done = run_command(command)
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
    assert world.json("users", "remove", "alice", "--yes") == {"user": "alice", "removed": True}
    world.headrace("users", "remove", "alice", "--yes", expect=1)
    assert "alice" not in world.headrace("users", "list")
