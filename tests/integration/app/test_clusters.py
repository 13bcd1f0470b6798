"""Spark elsewhere than in this process: executors of their own, spark-submit, a session that is there.

The first two in processes of their own, since a process has one Spark at most.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from app_runs import headers_of, log_ends, new_topic, read, rows, send, traffic
from topics import create_topic

import headrace as headrace_package
from headrace.app import load_app
from headrace.errors import ConfigError
from headrace.java import find_java, spark_environment
from headrace.streams import local_spark
from headrace.streams.spark import guest_session, spark_master

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]

CLUSTER = "local-cluster[2,1,1024]"
APP = """
from headrace import App, agg, tumbling
app = App("clusters")
events = app.stream({topic!r}, schema="place string, amount double, at long", event_time="at", partitions=2)

@app.view
def counts():
    windows = events.window(tumbling("10 seconds"), by="place")
    return windows.agg(n=agg.count(), sum=agg.sum("amount"))

app.topic({topic!r} + "-copies", key="place")(lambda: events)
"""
MASTERS = """
from headrace.errors import ConfigError
from headrace.streams import local_spark
from headrace.streams.spark.session import spark_master
try:
    spark_master("spark://elsewhere:7077")
except ConfigError as error:
    print("refused", error)
spark = local_spark("submitted")
print("runs on", spark.sparkContext.master, spark.conf.get("spark.sql.shuffle.partitions"))
again = local_spark("again", settings={"spark.sql.shuffle.partitions": "77"})
print("again", again is spark, spark.conf.get("spark.sql.shuffle.partitions"))
spark.stop()
"""
SUBMITTED = """
if __name__ == "__main__":
    app.run(until_caught_up=True)
"""


def headrace(*arguments, cwd):
    command = [str(Path(sys.executable).with_name("headrace")), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.slow
def test_a_cluster_of_processes_comes_to_the_same_results_and_unsuitable_settings_are_refused(
    our_log, tmp_path
):
    topic, file = new_topic(), tmp_path / "app.py"
    file.write_text(APP.format(topic=topic))
    create_topic(our_log, 2, topic)
    for partition in (0, 1):
        send(our_log, topic, traffic(partition), partition)
    common = ("--bootstrap", our_log.bootstrap_servers, "--until-caught-up")
    relative = headrace("run", file, "--master", CLUSTER, *common, cwd=tmp_path)
    assert relative.returncode != 0 and "absolute path" in relative.stderr
    assert not (tmp_path / ".headrace").exists()
    ran = headrace("run", file, "--master", CLUSTER, "--data", tmp_path / "data", *common, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert not list((tmp_path / "data").glob("probe-*"))
    found = headrace(
        "verify", file, "--data", tmp_path / "data", "--bootstrap", our_log.bootstrap_servers, "--json",
        cwd=tmp_path,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    (verdict,) = re.findall(r'"rows": (\d+),\s+"equal": (\w+)', found.stdout)
    assert int(verdict[0]) > 10 and verdict[1] == "true"
    copies, dead = read(our_log, f"{topic}-copies"), read(our_log, "clusters.dead")
    sources = [headers_of(each)["headrace.source"] for each in copies]
    assert len(set(sources)) == len(sources) == sum(log_ends(our_log, topic).values()) - len(dead)
    slots = json.loads((tmp_path / "data" / "queries" / topic / "manifest.json").read_text())["slots"]
    assert slots == 2, "its tasks wrote them"


def submitted(*arguments, **variables):
    submit = [str(Path(sys.executable).with_name("spark-submit")), *map(str, arguments)]
    environment = {**os.environ, **spark_environment(find_java()), **variables}
    done = subprocess.run(submit, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_spark_submit_was_told_stands(tmp_path):
    script = tmp_path / "masters.py"
    script.write_text(MASTERS)
    said = submitted("--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=5", script)
    told = [line for line in said.splitlines() if line.startswith(("refused", "runs on", "again"))]
    assert told[0].startswith("refused spark-submit was told the master local[1]")
    assert told[1:] == ["runs on local[1] 5", "again True 5"]


@pytest.mark.slow
def test_spark_submit_runs_an_applications_own_file_and_the_headrace_command(our_log, tmp_path):
    topic, file = new_topic(), tmp_path / "app.py"
    create_topic(our_log, 2, topic)
    for partition in (0, 1):
        send(our_log, topic, traffic(partition), partition)
    file.write_text(APP.format(topic=topic) + SUBMITTED)
    where = {"HEADRACE_BOOTSTRAP": our_log.bootstrap_servers, "HEADRACE_DATA": str(tmp_path / "own")}
    submitted("--master", "local[1]", file, **where)
    command = Path(headrace_package.__file__).with_name("__main__.py")
    flags = ("--bootstrap", our_log.bootstrap_servers, "--data", tmp_path / "command", "--until-caught-up")
    said = submitted("--master", "local[1]", command, "run", file, *flags)
    assert "running clusters" in said
    found = [rows(f"sqlite:///{tmp_path / each / 'views.db'}") for each in ("own", "command")]
    assert len(found[0]) > 10 and found[0] == found[1]


def test_a_session_that_this_process_has_is_used_as_it_is(spark):
    shuffles = spark.conf.get("spark.sql.shuffle.partitions")
    again = local_spark("again", settings={"spark.sql.shuffle.partitions": "77"}, cores=7)
    assert again is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == shuffles != "77"
    assert spark_master(None) == spark_master(spark.sparkContext.master) == spark.sparkContext.master
    with pytest.raises(ConfigError, match="the Spark session of this process runs on local"):
        local_spark("again", master="spark://elsewhere:7077")


def test_an_application_is_a_guest_of_a_session_and_leaves_it_as_it_was(spark, our_log, tmp_path):
    topic = new_topic()
    create_topic(our_log, 2, topic)
    for partition in (0, 1):
        send(our_log, topic, traffic(partition), partition)
    file = tmp_path / "app.py"
    file.write_text(APP.format(topic=topic))
    app, messages = load_app(file), []
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    before = dict(spark.conf.getAll)
    try:
        app.run(
            spark=spark,
            data=tmp_path / "data",
            bootstrap=our_log.bootstrap_servers,
            until_caught_up=True,
            conf={"spark.sql.streaming.pollingDelay": "11ms"},
            on_message=messages.append,
        )
        assert dict(spark.conf.getAll) == before
        assert spark.range(3).count() == 3
        own = guest_session(spark, {"spark.sql.streaming.pollingDelay": "11ms"})
        assert own.conf.get("spark.sql.session.timeZone") == "UTC"
        assert own.conf.get("spark.sql.shuffle.partitions") == "3"
        assert own.conf.get("spark.sql.streaming.pollingDelay") == "11ms"
        with pytest.raises(ConfigError, match=r"spark.executor.memory cannot be set in a Spark that runs"):
            guest_session(spark, {"spark.executor.memory": "2g"})
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert not any("Spark: starting" in each for each in messages)
    assert len(rows(f"sqlite:///{tmp_path / 'data' / 'views.db'}")) > 10
