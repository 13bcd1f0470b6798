"""What the command says when there is nobody to ask, or the question is wrong."""

import json
import socket
import subprocess
import sys
import threading

import pytest
from ready_command import run_command


def run(*arguments):
    done = run_command(arguments)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def refusing():
    """An address where nothing listens, kept from others by being bound."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize(
    "command", [("topics", "list"), ("groups", "list"), ("tail", "orders"), ("produce", "orders")]
)
def test_nothing_listening_is_said_at_once_with_the_next_step(refusing, command):
    done = run(*command, "--bootstrap", refusing)
    assert done.returncode == 3
    assert done.stderr.startswith(f"error: nothing is listening at {refusing}")
    assert "headrace broker" in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_with_json_the_error_is_json_too(refusing):
    done = run("topics", "list", "--json", "--bootstrap", refusing)
    error = json.loads(done.stderr)
    assert error["exit_code"] == done.returncode == 3
    assert "nothing is listening" in error["error"]


def test_the_address_comes_from_the_environment(refusing, monkeypatch):
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", refusing)
    assert refusing in run("topics", "list").stderr


def test_a_listener_that_does_not_speak_the_protocol_is_told_apart():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=greet_and_close, args=(server,), daemon=True).start()
        done = run("topics", "list", "--bootstrap", address)
    assert done.returncode == 3
    assert f"the broker at {address} does not answer" in done.stderr


def greet_and_close(server):
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("topic", "list"), "Did you mean 'topics'"),
        (("topics", "list", "--nope"), "--nope"),
        (("topics", "create"), "TOPIC"),
        (("topics", "create", "x", "--config", "novalue"), "NAME=VALUE"),
        (("topics", "alter", "x"), "nothing to change"),
        (("topics", "list", "--bootstrap", "nowhere"), "HOST:PORT"),
        (("tail", "x", "--from", "1", "--last", "2"), "--from and --last"),
        (("tail", "x", "--until", "latest", "--follow"), "--until and --follow exclude each other"),
        (("produce", "x", "--json-lines", "-k", ":"), "--key-separator"),
        (("broker", "--listen", "nowhere"), "HOST:PORT"),
        (("broker", "--default-partitions", "many"), "--default-partitions"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(arguments, named):
    done = run(*arguments)
    assert done.returncode == 2, done.stderr
    assert named in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_bad_time_or_expression_is_refused_before_anything_is_asked(refusing):
    assert "ISO 8601" in run("tail", "x", "--since", "yesterday", "--bootstrap", refusing).stderr
    assert "regular expression" in run("tail", "x", "--match", "(", "--bootstrap", refusing).stderr


def test_simple_commands_import_neither_spark_nor_arrow_nor_the_broker():
    program = (
        "import sys; from headrace.cli.main import run; run(['topics', 'list', '-b', '127.0.0.1:1']); "
        "print([m for m in ('pyspark', 'pyarrow', 'pandas', 'kio', 'headrace.broker') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"
