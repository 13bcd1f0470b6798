"""An application on a Spark standalone cluster: what works there, and what is refused in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from app_runs import new_topic, rows, send, traffic
from standalone import StandaloneCluster
from topics import create_topic

import headrace as headrace_package

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("cluster")]

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


def headrace(command, file, log, cluster, data, **variables):
    arguments = [command, file, "--master", cluster.url, "--bootstrap", log.bootstrap_servers, "--data", data]
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
