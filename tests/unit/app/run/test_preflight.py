"""Settings that cannot work where Spark runs, refused before anything is made."""

import re
from pathlib import Path

import pytest

from headrace import App
from headrace.app.options import RunOptions, data_place
from headrace.app.run import preflight
from headrace.app.run.preflight import (
    ExecutorReport,
    check_from_executor,
    check_url_from_executor,
    explain,
    problems,
    reached,
    refuse_unsupported,
)
from headrace.app.run.runner import running
from headrace.client import Connection
from headrace.errors import ConfigError, RetriableError
from headrace.objects import leave_probe, open_objects
from headrace.streams.spark import is_local, spark_master

REMOTE = "spark://host:7077"


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    """Another test of this process may have started a Spark, whose master would count."""
    monkeypatch.setattr("headrace.streams.spark.session.SparkContext._active_spark_context", None)


@pytest.mark.parametrize("url", ["s3a://bucket/app", "hdfs://name:8020/app", "file:///tmp/app", "gs://b"])
def test_a_url_is_no_data_folder_and_makes_none(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with (
        pytest.raises(ConfigError, match=r"data=.* is a URL: give it as `url`"),
        running(App("a"), RunOptions(data=Path(url))),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("s3a://bucket/app", r"--data s3a://bucket/app: s3a:// is not supported; write s3://bucket/app"),
        ("ftp://host/app", r"ftp:// is not supported; use one of s3://"),
        ("s3://bucket", r"name a folder in it"),
    ],
)
def test_a_url_that_nothing_can_be_kept_at_is_refused_and_makes_no_folder(given, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        data_place(given, "a")
    with (
        pytest.raises(ConfigError, match=said),
        running(App("a"), RunOptions(data=tmp_path / "d", url=given)),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_url_needs_a_log_that_other_machines_reach():
    with pytest.raises(ConfigError, match=r"the embedded log keeps its files on this machine.*--bootstrap"):
        refuse_unsupported(RunOptions(data=Path("d"), url="s3://bucket/app"))
    refuse_unsupported(RunOptions(data=Path("d"), url="s3://bucket/app", bootstrap="log:9092", master=REMOTE))


def test_each_url_has_a_folder_of_its_own_and_paths_are_taken_as_they_are():
    assert data_place(None, "a") == (Path(".headrace/a"), None)
    assert data_place("/srv/a", "a") == (Path("/srv/a"), None)
    (one, url), (other, _) = data_place("s3://bucket/one", "a"), data_place("s3://bucket/other", "a")
    assert url == "s3://bucket/one" and one != other and one.is_absolute()


def test_an_executor_that_sees_other_objects_than_the_driver_says_so(tmp_path):
    token = leave_probe(open_objects(f"file://{tmp_path}/driver"))
    assert check_url_from_executor(f"file://{tmp_path}/driver", token, Connection(), []).problem == ""
    unseen = check_url_from_executor(f"file://{tmp_path}/elsewhere", token, Connection(), [])
    (problem,) = problems([unseen, unseen], None, unseen.version)
    assert re.match(r"the executor on .* does not see the driver's objects at file://.*/elsewhere", problem)


def test_a_cluster_cannot_use_the_embedded_log():
    with pytest.raises(ConfigError, match=r"cannot reach the embedded log.*--bootstrap"):
        refuse_unsupported(RunOptions(data=Path("/shared"), master=REMOTE, bootstrap=None))


def test_a_cluster_needs_an_absolute_data_folder():
    with pytest.raises(ConfigError, match=r"\.headrace/a is relative.*absolute path of a folder that all"):
        refuse_unsupported(RunOptions(data=Path(".headrace/a"), master=REMOTE, bootstrap="log:9092"))
    refuse_unsupported(RunOptions(data=Path("/shared"), master=REMOTE, bootstrap="log:9092"))


@pytest.mark.parametrize("master", [None, "local", "local[4]", "local[2,4]", "local[*]"])
def test_on_this_machine_a_relative_folder_and_the_embedded_log_do(master):
    assert is_local(master)
    refuse_unsupported(RunOptions(data=Path(".headrace/a"), master=master, bootstrap=None))


def test_local_cluster_has_processes_of_its_own_on_this_machine():
    assert not is_local("local-cluster[2,1,1024]")
    refuse_unsupported(RunOptions(data=Path("/data"), master="local-cluster[2,1,1024]", bootstrap=None))
    with pytest.raises(ConfigError, match="is relative"):
        refuse_unsupported(RunOptions(data=Path("data"), master="local-cluster[2,1,1024]", bootstrap=None))


def test_an_executor_that_does_not_see_the_drivers_file_says_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight.socket, "gethostname", lambda: "worker-7")
    found = check_from_executor(tmp_path / "elsewhere", "token", Connection(), [])
    (told,) = problems([found, found], tmp_path, found.version)
    assert told.startswith("the executor on worker-7 does not share") and "mount it" in told


def test_an_executor_whose_file_the_driver_does_not_see_has_a_different_folder(tmp_path):
    for folder in ("driver", "executor"):
        (tmp_path / folder).mkdir()
    (tmp_path / "executor" / "probe-token").write_text("token")
    found = check_from_executor(tmp_path / "executor", "token", Connection(), [])
    assert problems([found], tmp_path / "executor", found.version) == []
    (told,) = problems([found], tmp_path / "driver", found.version)
    assert "has a different folder" in told


def answering(*addresses):
    """A log of which only these brokers answer."""

    def ask(connection):
        if connection.bootstrap_servers not in addresses:
            raise RetriableError(f"nobody answers at {connection.bootstrap_servers}")
        return list(addresses)

    return ask


def test_an_executor_must_reach_each_broker_that_the_driver_reaches(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "require_log", answering("a:1", "b:2"))
    wanted = reached(Connection(), ["a:1", " gone:9", "", "b:2", "a:1"])
    assert wanted == ["a:1", "b:2"]
    (tmp_path / "probe-token").write_text("token")
    assert check_from_executor(tmp_path, "token", Connection(), wanted).problem == ""
    monkeypatch.setattr(preflight, "require_log", answering("a:1"))
    found = check_from_executor(tmp_path, "token", Connection(), wanted)
    assert found.problem == "cannot reach the broker b:2, which the driver reaches: nobody answers at b:2"


def test_an_executor_without_the_compiled_part_says_so(tmp_path, monkeypatch):
    def missing():
        raise ConfigError("the compiled part of Headrace cannot be loaded")

    monkeypatch.setattr(preflight, "library", missing)
    found = check_from_executor(tmp_path, "token", Connection(), [])
    assert found.problem == "cannot run Headrace: the compiled part of Headrace cannot be loaded"


def test_an_executor_with_another_version_is_named(tmp_path):
    assert problems([ExecutorReport("w", "f", "0.1", "")], tmp_path, "0.2") == [
        "the executor on w has Headrace 0.1, but the driver has 0.2: install the same there"
    ]


LOST = "Lost task 0.3 in stage 0.0 (TID 6) (10.77.0.11 executor 0): "


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            'java.io.IOException: Cannot run program "/opt/python": error=2, No such file or directory',
            "has no Python at /opt/python: let PYSPARK_PYTHON name one that is there",
        ),
        (
            "org.apache.spark.SparkException: EOFException occurred while reading the port number from "
            "headrace.streams.spark.worker_daemon's stdout.",
            "(/py) cannot import Headrace: install headrace 9.9 there",
        ),
        ("ModuleNotFoundError: No module named 'headrace'", "(/py) cannot import Headrace: install"),
        (
            "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 "
            "than that in driver: 3.11, PySpark cannot run with different minor versions.",
            "has Python 3.12, but the driver has 3.11: let PYSPARK_PYTHON name a Python 3.11 that is there",
        ),
        ("OSError: the disk is full", "failed the check before the first batch: OSError: the disk is full"),
    ],
)
def test_what_keeps_an_executor_from_the_check_is_one_line_with_machine_and_fix(said, told):
    line = explain(LOST + "\n" + said, "/py", "9.9")
    assert "the executor on 10.77.0.11" in line and told in line and "\n" not in line


def test_spark_connect_is_refused_with_the_reason(monkeypatch):
    monkeypatch.setenv("SPARK_REMOTE", "sc://host:15002")
    with pytest.raises(ConfigError, match="SPARK_REMOTE asks for Spark Connect"):
        spark_master(None)


def test_another_master_than_that_of_the_session_or_of_spark_submit_is_refused(monkeypatch):
    monkeypatch.setattr("headrace.streams.spark.session._submitted", lambda: {"spark.master": REMOTE})
    assert spark_master(None) == spark_master(REMOTE) == REMOTE
    with pytest.raises(ConfigError, match=r"spark-submit was told the master .*, and --master says local"):
        spark_master("local[2]")

    class Context:
        master = "local[4]"

    monkeypatch.setattr("headrace.streams.spark.session.SparkContext._active_spark_context", Context)
    assert spark_master(None) == "local[4]"
    with pytest.raises(ConfigError, match=r"session of this process runs on local\[4\], and --master says"):
        spark_master(None, {"spark.master": REMOTE})
