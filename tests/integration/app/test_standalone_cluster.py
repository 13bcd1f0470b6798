"""An application on a Spark standalone cluster: what works there, and what is refused in one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from app_runs import BASE_MS, new_topic, rows, send, traffic
from standalone import StandaloneCluster
from topics import create_topic

import headrace as headrace_package
from headrace.client import producer

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("cluster")]

RECORDS, VALUE_BYTES = 350_000, 2_000
APP = """
from headrace import App, agg, tumbling
app = App("clusters")
events = app.stream({topic!r}, schema="place string, amount double, at long", event_time="at", partitions=2)

@app.view
def counts():
    windows = events.window(tumbling("10 seconds"), by="place")
    return windows.agg(n=agg.count(), sum=agg.sum("amount"))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def application(our_log, tmp_path):
    topic, file = new_topic(), tmp_path / "app.py"
    file.write_text(APP.format(topic=topic))
    create_topic(our_log, 2, topic)
    for partition in (0, 1):
        send(our_log, topic, traffic(partition), partition)
    return file


def headrace(command, file, log, cluster, data, *more, **variables):
    arguments = [command, file, "--master", cluster.url, "--bootstrap", log.bootstrap_servers, "--data", data]
    arguments += more
    # Executors find the package that is tested; elsewhere it is installed on their machines.
    arguments += ["--conf", f"spark.executorEnv.PYTHONPATH={Path(headrace_package.__file__).parents[1]}"]
    arguments += ["--until-caught-up"] if command == "run" else []
    return subprocess.run(
        [str(Path(sys.executable).with_name("headrace")), *map(str, arguments)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.timeout(1800)
def test_a_cluster_runs_an_application_and_proves_its_views(cluster, application, our_log, tmp_path):
    data = tmp_path / "data"
    ran = headrace("run", application, our_log, cluster, data)
    assert ran.returncode == 0, ran.stderr
    assert len(rows(f"sqlite:///{data / 'views.db'}")) > 10
    assert not list(data.glob("probe-*"))
    proved = headrace("verify", application, our_log, cluster, data)
    assert proved.returncode == 0 and "counts: equal" in proved.stdout, proved.stdout + proved.stderr


@pytest.mark.timeout(1800)
def test_records_that_are_small_compressed_and_large_decoded_fit_into_an_executor(cluster, our_log, tmp_path):
    topic, file, data = new_topic(), tmp_path / "app.py", tmp_path / "data"
    file.write_text(APP.format(topic=topic))
    create_topic(our_log, 2, topic)
    client = producer(our_log, compression_type="zstd", linger_ms=50, batch_size=1 << 20)
    for number in range(RECORDS):
        value = {"place": "here", "amount": 1.0, "at": BASE_MS + number, "about": "x" * VALUE_BYTES}
        client.produce(topic, json.dumps(value).encode(), partition=number % 2)
        client.poll(0 if len(client) < 50_000 else 0.1)
    assert client.flush(300) == 0
    ran = headrace("run", file, our_log, cluster, data, "--json", "--conf", "spark.executor.memory=512m")
    assert ran.returncode == 0, ran.stderr
    batches = [json.loads(line).get("records", 0) for line in ran.stdout.splitlines() if line[:1] == "{"]
    decoded = [each * VALUE_BYTES for each in batches if each]
    assert sum(batches) == RECORDS and max(decoded) <= 256 << 20 and len(decoded) > 2, batches
    assert "restarted" not in ran.stdout and "OutOfMemory" not in (data / "spark.messages").read_text()
    proved = headrace("verify", file, our_log, cluster, data)
    assert proved.returncode == 0 and "counts: equal" in proved.stdout, proved.stdout + proved.stderr


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("python", "told"),
    [
        ("/nowhere/python", "the executor on 127.0.0.1 has no Python at /nowhere/python"),
        ("bare", "cannot import Headrace: install headrace"),
    ],
)
def test_a_worker_without_python_or_without_headrace_is_told_in_one_line(
    cluster, application, our_log, tmp_path, python, told
):
    if python == "bare":  # the same interpreter, without what is installed for ours
        script = tmp_path / "python"
        script.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} -S "$@"\n')
        script.chmod(0o755)
        python = str(script)
    ran = headrace("run", application, our_log, cluster, tmp_path / "data", PYSPARK_PYTHON=python)
    assert ran.returncode == 2
    (line,) = [each for each in ran.stderr.splitlines() if each]
    assert told in line and "PYSPARK_PYTHON" in line
