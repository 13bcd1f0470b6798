"""An application, its console, its webhooks and its proof on a log that wants TLS and a login."""

import base64
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.integration.access.conftest import PASSWORDS
from tests.integration.console.http_client import ask
from tests.integration.hooks.receivers import Receiver

from headrace.app.loading import load_app
from headrace.app.options import RunOptions
from headrace.app.run.runner import running
from headrace.app.verify.command import verified
from headrace.client import Connection, Identity, consumer, producer
from headrace.errors import RequestError
from headrace.streams import register

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
TIMEOUT_S = 120
APPLICATION = """
from headrace import App, agg, tumbling

app = App("{name}")
orders = app.stream("{name}.orders", schema="order_id string, region string, amount double", partitions=2)


@app.view
def revenue():
    return orders.window(tumbling("1 day"), by="region", emit="update").agg(revenue=agg.sum("amount"))


@app.topic("{name}.totals")
def totals():
    return orders.window(tumbling("1 day"), emit="update").agg(orders=agg.count())


@app.topic("{name}.large", key="order_id")
def large():
    return orders.where("amount > 100").select("order_id", "amount")


app.webhook("{name}.large", url="env:LARGE_URL", secret="env:LARGE_SECRET", allow="127.0.0.1")
"""
FRAME = """

@app.view(key="region")
def regions():
    return orders.df.groupBy("region").count()
"""


@pytest.fixture
def password_file(tmp_path):
    path = tmp_path / "password-of-alice"
    path.write_text(PASSWORDS["alice"] + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def alice(secured, password_file):
    """As docs/guides/security.md has it: what an application named `till…` needs, and nothing else."""
    for operation in ("READ", "WRITE", "CREATE"):
        secured.allow("alice", operation, "TOPIC", "till", prefixed=True)
        secured.allow("alice", operation, "TOPIC", "headrace-batches")
        secured.allow("alice", operation, "TOPIC", "__headrace_audit")
    for group in ("till", "headrace-till", "headrace-view-till"):
        secured.allow("alice", "READ", "GROUP", group, prefixed=True)
    for name in ("headrace-till", "headrace-view-till"):
        secured.allow("alice", "WRITE", "TRANSACTIONAL_ID", name, prefixed=True)
    return Connection(
        bootstrap_servers=secured.bootstrap,
        user="alice",
        password_file=str(password_file),
        tls_ca=str(secured.pki.ca),
    )


@pytest.fixture
def file(tmp_path, request):
    name = f"till-{os.getpid()}-{len(request.node.name)}"
    path = tmp_path / f"{name}.py"
    path.write_text(APPLICATION.format(name=name))
    return path


def send(connection, topic, values):
    client = producer(connection)
    for number, value in enumerate(values):
        client.produce(topic, value if isinstance(value, bytes) else json.dumps(value), partition=number % 2)
    assert client.flush(TIMEOUT_S) == 0


def orders(count):
    return [{"order_id": f"o-{n}", "region": "ns"[n % 2], "amount": 15.0 * n} for n in range(count)]


def records(connection, topic, count):
    client = consumer(connection, f"{topic}.test", auto_offset_reset="earliest")
    try:
        client.subscribe([topic])
        found = []
        while len(found) < count:
            found += client.consume(count, 1)
        return [json.loads(each.value()) for each in found]
    finally:
        client.close()


def require_no_password_in(folder):
    looked_at = [path for path in folder.rglob("*") if path.is_file()]
    assert {"app.json", "status.json", "console.messages"} <= {path.name for path in looked_at}
    told = [str(path) for path in looked_at if PASSWORDS["alice"].encode() in path.read_bytes()]
    assert told == []


def command_lines():
    found = []
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            found.append(" ".join(each.cmdline()))
    return found


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_an_application_with_all_that_is_beside_it(alice, file, spark, tmp_path, monkeypatch):
    app, data = load_app(file), tmp_path / "data"
    options = RunOptions(
        data=data,
        bootstrap=alice.bootstrap_servers,
        identity=Identity(**alice.identity_fields()),
        http="127.0.0.1:0",
    )
    with Receiver(SECRET) as receiver:
        monkeypatch.setenv("LARGE_URL", receiver.url)
        monkeypatch.setenv("LARGE_SECRET", SECRET)
        with running(app, options) as started:
            send(alice, f"{app.name}.orders", [*orders(10), b"no order"])
            url = started.console.url.rstrip("/")
            order = {"order_id": "o-10", "region": "n", "amount": 150.0}
            sent = ask(url, "POST", f"/v1/topics/{app.name}.orders/records", {"records": [{"value": order}]})
            assert sent.status == 200, sent.body
            asked = {"token": sent.json["token"], "wait_ms": 1_000}
            while (answer := ask(url, "GET", "/v1/views/revenue/rows", **asked)).status != 200:
                assert not started.wait(0.1), "the query ended"
            assert [row["revenue"] for row in answer.json["rows"]] == [450.0, 375.0]
            while (totals := ask(url, "GET", f"/v1/views/{app.name}.totals/rows", **asked)).status != 200:
                assert not started.wait(0.1), "the query ended"
            assert [row["orders"] for row in totals.json["rows"]] == [11]
            while ask(url, "GET", f"/v1/groups/{app.name}.{app.name}.orders").status != 200:
                assert not started.wait(0.1), "the query ended"
            receiver.wait_for_count(4, TIMEOUT_S)
            told = command_lines()
            assert any("console" in line for line in told) and any("deliver" in line for line in told)
            assert not [line for line in told if PASSWORDS["alice"] in line or "alice" in line.split()]
        assert {each.data["order_id"] for each in receiver.requests} == {"o-7", "o-8", "o-9", "o-10"}
    verdicts = {each.view: each for each in verified(app, options)}
    assert verdicts["revenue"].is_equal and verdicts[f"{app.name}.totals"].is_equal
    assert verdicts["revenue"].reflected.counters["dead"] == 1
    require_no_password_in(data)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_spark_source(alice, secured, spark):
    topic = f"till-source-{os.getpid()}"
    secured.create(topic, 2)
    send(alice, topic, orders(4))
    register(spark)
    reader = spark.read.format("headrace").schema("order_id string, amount double")
    log = {"bootstrap_servers": alice.bootstrap_servers, **alice.identity_fields()}
    rows = reader.options(topic=topic, **log).load().collect()
    assert sorted(row["order_id"] for row in rows) == ["o-0", "o-1", "o-2", "o-3"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"user": "bob"}, "login: "),
        ({"user": "alice", "tls_ca": "system"}, "no encrypted connection"),
    ],
)
def test_a_login_that_fails_ends_a_run_before_spark_starts(alice, tmp_path, change, reason):
    identity = Identity(**{**alice.identity_fields(), **change})
    options = RunOptions(data=tmp_path / "data", bootstrap=alice.bootstrap_servers, identity=identity)
    with pytest.raises(RequestError, match=reason), running(None, options):
        pass


def headrace(*arguments, environment, timeout_s=30, **more):
    command = [sys.executable, "-m", "headrace", *map(str, arguments)]
    ended = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=timeout_s, **more
    )
    assert PASSWORDS["alice"] not in ended.stdout + ended.stderr
    return ended


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
def test_the_commands_with_a_password_in_the_environment(alice, file, tmp_path):
    """Also in a Spark that the command starts, and for a plain DataFrame; nothing in any file."""
    file.write_text(file.read_text() + FRAME)
    name, data = file.stem, tmp_path / "data"
    environment = {
        "HEADRACE_USER": "alice",
        "HEADRACE_PASSWORD": PASSWORDS["alice"],
        "HEADRACE_TLS_CA": os.path.relpath(alice.tls_ca),
        "LARGE_URL": "http://127.0.0.1:9/",
        "LARGE_SECRET": SECRET,
    }
    place = ["--bootstrap", alice.bootstrap_servers, "--data", data]
    made = headrace("topics", "create", f"{name}.orders", "-p", 2, *place[:2], environment=environment)
    assert made.returncode == 0, made.stderr
    send(alice, f"{name}.orders", orders(10))
    ran = headrace("run", file, *place, "--until-caught-up", environment=environment, timeout_s=300)
    assert ran.returncode == 0, ran.stderr
    proved = headrace("verify", file, *place, "--json", environment=environment, timeout_s=300)
    assert proved.returncode == 0, proved.stderr
    views = {each["view"]: each for each in json.loads(proved.stdout)["views"]}
    assert views["revenue"]["rows"] == 2 and views[f"{name}.totals"]["equal"]
    assert len(records(alice, f"{name}.large", 3)) == 3
    listed = headrace("hooks", "list", "--data", data, "--json", environment=environment)
    assert json.loads(listed.stdout)["hooks"][0]["hook"] == f"{name}.large.webhook"
    told = [path for path in Path(data).rglob("*") if path.is_file()]
    assert not [path for path in told if PASSWORDS["alice"].encode() in path.read_bytes()]
    refused = headrace("run", file, *place, environment={**environment, "HEADRACE_PASSWORD": "wrong"})
    assert refused.returncode == 1 and "login: " in refused.stderr
