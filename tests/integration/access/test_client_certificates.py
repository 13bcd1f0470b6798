"""Our own clients say who they are by a certificate: commands, the raw fetcher, Spark, an application."""

import contextlib
import contextvars
import io
import json
import os
import socket
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.access.conftest import PASSWORDS
from tests.integration.console.http_client import ask

from headrace.app.loading import load_app
from headrace.app.options import RunOptions
from headrace.app.run.runner import running
from headrace.cli.main import run
from headrace.client import LATEST, Connection, Identity, RawFetcher, consumer, producer, require_log
from headrace.client.connect.channel import Channel
from headrace.errors import ConfigError, RequestError, RetriableError
from headrace.records.columns import decode_columns
from headrace.streams import register
from headrace.testing.broker import running_broker
from headrace.wire import Api, encode_request

CAROL = "CN=carol,O=Example,C=DE"
APPLICATION = """
from headrace import App, agg, tumbling

app = App("{name}")
orders = app.stream("{name}.orders", schema="order_id string, amount double", partitions=1)


@app.view
def revenue():
    return orders.window(tumbling("1 day"), emit="update").agg(revenue=agg.sum("amount"))
"""


@pytest.fixture(scope="module")
def carol(secured, pki):
    certificate, key = pki.issue("carol-of-ours", "/C=DE/O=Example/CN=carol")
    return Connection(
        bootstrap_servers=secured.bootstrap,
        tls_ca=str(pki.ca),
        client_certificate=str(certificate),
        client_key=str(key),
    )


@pytest.fixture(scope="module")
def mallory(secured, pki, tmp_path_factory):
    """Who has a certificate in an administrator's name, of an authority of her own."""
    certificate, key = type(pki)(tmp_path_factory.mktemp("mallory")).issue("mallory", "/CN=admin")
    return Connection(
        bootstrap_servers=secured.bootstrap,
        tls_ca=str(pki.ca),
        client_certificate=str(certificate),
        client_key=str(key),
    )


def command(connection, *arguments):
    """Runs a command as a process of its own would: nothing is remembered from the one before."""
    identity = ["--tls-ca", connection.tls_ca, "-b", connection.bootstrap_servers]
    identity += ["--client-certificate", connection.client_certificate, "--client-key", connection.client_key]
    return contextvars.copy_context().run(run, [*arguments, *identity])


def secret_lines(connection):
    lines = Path(connection.client_key).read_text().splitlines()
    return [line for line in lines if not line.startswith("---")]


def send(connection, topic, *values):
    client = producer(connection)
    for value in values:
        client.produce(topic, value)
    assert client.flush(60) == 0


# --- commands -----------------------------------------------------------------------------------


def test_commands_are_allowed_what_the_certificates_user_is(secured, carol, topic, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    assert command(carol, "produce", topic) == 1
    assert f"topic '{topic}' does not exist" in capsys.readouterr().err
    secured.allow(CAROL, "WRITE", "TOPIC", topic)
    assert command(carol, "topics", "list", "--json") == 0
    assert topic in {each["topic"] for each in json.loads(capsys.readouterr().out)["topics"]}
    assert command(carol, "produce", topic) == 0
    capsys.readouterr()
    assert command(carol, "tail", topic, "--no-follow", "--values") == 1
    assert "authorization failed" in capsys.readouterr().err
    secured.allow(CAROL, "READ", "TOPIC", topic)
    assert command(carol, "tail", topic, "--no-follow", "--values") == 0
    assert capsys.readouterr().out == "one\ntwo\n"
    assert command(carol, "groups", "list", "--json") == 0
    assert command(carol, "queues", "list", "--json") == 0


def test_the_environment_says_the_same_as_the_options(secured, carol, topic, monkeypatch, capsys):
    secured.allow(CAROL, "DESCRIBE", "TOPIC", topic)
    for name, value in carol.environment().items():
        monkeypatch.setenv(name, value)
    list_topics = ["topics", "list", "--json", "-b", carol.bootstrap_servers]
    assert contextvars.copy_context().run(run, list_topics) == 0
    assert topic in {each["topic"] for each in json.loads(capsys.readouterr().out)["topics"]}


@pytest.mark.parametrize(
    "arguments", [["topics", "list"], ["tail", "t", "--no-follow"], ["queues", "list"]], ids=" ".join
)
def test_commands_tell_that_a_certificate_is_not_trusted(mallory, arguments, capsys):
    assert command(mallory, *arguments) == 1
    told = capsys.readouterr().err
    assert "unknown ca" in told.lower().replace("_", " ")
    assert "--client-certificate" in told or "client_certificate" in told
    assert not [line for line in secret_lines(mallory) if line in told]


# --- our own protocol ---------------------------------------------------------------------------


def test_the_raw_fetcher_reads_as_the_certificates_user(secured, carol, topic):
    secured.allow(CAROL, "WRITE", "TOPIC", topic)
    send(carol, topic, b"a", b"b", b"c")
    with RawFetcher(carol) as fetcher, pytest.raises(RequestError):
        list(fetcher.fetch(topic, 0, 0, 3))
    secured.allow(CAROL, "READ", "TOPIC", topic)
    with RawFetcher(carol) as fetcher:
        assert fetcher.offsets(topic, LATEST) == {0: 3}
        runs = [decode_columns(each) for each in fetcher.fetch(topic, 0, 0, 3)]
    assert [value for each in runs for value in each["value"].to_pylist()] == [b"a", b"b", b"c"]


def test_a_consumer_of_a_group_reads_as_the_certificates_user(secured, carol, topic):
    for operation, kind in (("WRITE", "TOPIC"), ("READ", "TOPIC"), ("READ", "GROUP")):
        secured.allow(CAROL, operation, kind, topic)
    send(carol, topic, b"a")
    member = consumer(carol, topic, auto_offset_reset="earliest")
    member.subscribe([topic])
    try:
        assert member.consume(1, 60)[0].value() == b"a"
    finally:
        member.close()


def test_a_certificate_that_is_not_trusted_is_told_at_once(mallory):
    with pytest.raises(RequestError, match=r"UNKNOWN_CA.*client_certificate"):
        require_log(mallory)


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        ({}, RequestError, "UNKNOWN_CA.*client_certificate"),
        ({"client_key": "/nowhere/mallory.key"}, ConfigError, "/nowhere/mallory.key.*No such file"),
    ],
)
def test_a_certificate_of_no_use_ends_a_run_before_spark_starts(mallory, tmp_path, change, error, reason):
    identity = Identity(**{**mallory.identity_fields(), **change})
    options = RunOptions(data=tmp_path / "data", bootstrap=mallory.bootstrap_servers, identity=identity)
    with pytest.raises(error, match=reason), running(None, options):
        pass


# --- with a user as well ------------------------------------------------------------------------


@pytest.fixture
def alice_by_carol(carol, tmp_path):
    path = tmp_path / "password"
    path.write_text(PASSWORDS["alice"])
    fields = carol.identity_fields() | {"user": "alice", "password_file": str(path)}
    return Connection(bootstrap_servers=carol.bootstrap_servers, **fields)


def test_who_logs_in_over_a_certificate_is_the_user(secured, alice_by_carol, topic):
    secured.allow("alice", "ALL", "TOPIC", topic)
    send(alice_by_carol, topic, b"a")
    with RawFetcher(alice_by_carol) as fetcher:
        assert fetcher.offsets(topic, LATEST) == {0: 1}


def test_nothing_that_the_certificate_allows_is_left_once_a_login_begins(secured, carol, topic):
    """Not the decisions that were made for it, nor anything between the handshake and its end."""
    secured.allow(CAROL, "DESCRIBE", "TOPIC", topic)
    host, port = carol.servers()[0]
    asked = {
        "topics": [{"topic_id": None, "name": topic}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }

    def opened():
        channel = Channel(host, port, client_id="t", timeout_ms=20_000, security=carol.security())
        assert channel.request(Api.METADATA, 12, asked).topics[0].error_code == 0
        assert channel.request(Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}).error_code == 0
        return channel

    between = opened()
    with pytest.raises(RetriableError, match="closed the connection"):
        between.request(Api.METADATA, 12, asked)
    wrong = opened()
    refused = wrong.request(Api.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0bob\0wrong"})
    assert refused.error_code == 58
    with pytest.raises(RetriableError, match="closed the connection"):
        wrong.request(Api.METADATA, 12, asked)
    bob = opened()
    login = f"\0bob\0{PASSWORDS['bob']}".encode()
    assert bob.request(Api.SASL_AUTHENTICATE, 2, {"auth_bytes": login}).error_code == 0
    assert bob.request(Api.METADATA, 12, asked).topics[0].error_code != 0
    assert bob.request(Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}).error_code == 34
    bob.close()


def test_a_large_request_amid_a_login_leaves_no_memory_taken(carol, mallory, secured_settings, tmp_path):
    """And so it is, with the alert for a certificate, on asyncio's own loop as well."""
    with running_broker(tmp_path / "data", **secured_settings) as broker:
        with pytest.raises(RequestError, match="UNKNOWN_CA"):
            require_log(replace(mallory, bootstrap_servers=f"127.0.0.1:{broker.port}"))
        context = carol.security().tls
        with socket.create_connection(("127.0.0.1", broker.port), 60) as raw:
            client = context.wrap_socket(raw, server_hostname="localhost")
            large = struct.pack(">ihhih", 2_000_000, Api.PRODUCE, 9, 2, -1) + bytes(2_000_000 - 10)
            login = encode_request(Api.SASL_HANDSHAKE, 1, 1, "t", {"mechanism": "PLAIN"})
            with contextlib.suppress(ConnectionError):
                client.sendall(bytes(login) + large)
                while client.recv(1000):
                    pass
        assert broker.services.memory.held_bytes == 0


# --- Spark --------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_spark_source_reads_as_the_certificates_user(secured, carol, topic, spark):
    secured.allow(CAROL, "ALL", "TOPIC", topic)
    send(carol, topic, b'{"order_id": "o-1"}')
    register(spark)
    log = {"bootstrap_servers": carol.bootstrap_servers, **carol.identity_fields()}
    reader = spark.read.format("headrace").schema("order_id string")
    assert [row["order_id"] for row in reader.options(topic=topic, **log).load().collect()] == ["o-1"]


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_an_application_with_its_console_runs_by_a_certificate(secured, carol, spark, tmp_path):
    name = f"kiosk-{os.getpid()}"
    for operation in ("READ", "WRITE", "CREATE"):
        secured.allow(CAROL, operation, "TOPIC", "kiosk", prefixed=True)
        secured.allow(CAROL, operation, "TOPIC", "headrace-batches")
        secured.allow(CAROL, operation, "TOPIC", "__headrace_audit")
    for group in ("kiosk", "headrace-kiosk", "headrace-view-kiosk"):
        secured.allow(CAROL, "READ", "GROUP", group, prefixed=True)
        secured.allow(CAROL, "WRITE", "TRANSACTIONAL_ID", group, prefixed=True)
    path = tmp_path / f"{name}.py"
    path.write_text(APPLICATION.format(name=name))
    options = RunOptions(
        data=tmp_path / "data",
        bootstrap=carol.bootstrap_servers,
        identity=Identity(**carol.identity_fields()),
        http="127.0.0.1:0",
    )
    with running(load_app(path), options) as started:
        url = started.console.url.rstrip("/")
        order = {"order_id": "o-1", "amount": 15.0}
        sent = ask(url, "POST", f"/v1/topics/{name}.orders/records", {"records": [{"value": order}]})
        assert sent.status == 200, sent.body
        asked = {"token": sent.json["token"], "wait_ms": 1_000}
        while (answer := ask(url, "GET", "/v1/views/revenue/rows", **asked)).status != 200:
            assert not started.wait(0.1), "the query ended"
        assert [row["revenue"] for row in answer.json["rows"]] == [15.0]
    kept = [each.read_bytes() for each in (tmp_path / "data").rglob("*") if each.is_file()]
    assert not [line for line in secret_lines(carol) if any(line.encode() in each for each in kept)]
