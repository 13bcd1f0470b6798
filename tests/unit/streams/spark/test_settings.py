"""Which settings a session gets: the user's, then ours where nobody chose; times in UTC always."""

import importlib
import sys

import pytest

from headrace.errors import ConfigError
from headrace.streams.spark.session import java_options
from headrace.streams.spark.settings import (
    parse_settings,
    read_defaults,
    refuse_connect,
    refuse_connect_session,
    session_settings,
    spark_defaults,
)
from headrace.streams.spark.worker_python import given_python

SHUFFLES, ZONE = "spark.sql.shuffle.partitions", "spark.sql.session.timeZone"
REMOTE = "spark://host:7077"


@pytest.mark.parametrize("key", [SHUFFLES, "spark.ui.enabled", "spark.python.daemon.module"])
def test_what_the_user_chose_is_not_set_again(key):
    assert key in session_settings("local[2]", {})
    assert key not in session_settings("local[2]", {key: "theirs"})


def test_times_are_in_utc_whatever_was_chosen():
    assert session_settings("local[2]", {ZONE: "Europe/Berlin"})[ZONE] == "UTC"


def test_only_a_spark_on_this_machine_is_bound_to_loopback_and_cut_into_few_tasks():
    for key in ("spark.driver.host", SHUFFLES):
        assert key in session_settings(None, {}) and key in session_settings("local-cluster[2,1,1024]", {})
        assert key not in session_settings(REMOTE, {})


def test_conf_is_key_and_value_and_later_ones_win():
    assert parse_settings(["spark.a=1", "spark.b=x=y", "spark.a=2"]) == {"spark.a": "2", "spark.b": "x=y"}
    for wrong in ("spark.a", "executor.memory=2g", "=2"):
        with pytest.raises(ConfigError, match="is key=value, such as"):
            parse_settings([wrong])
    with pytest.raises(ConfigError, match="Headrace counts in UTC"):
        parse_settings([f"{ZONE}=Europe/Berlin"])


def test_a_file_of_defaults_is_read_as_spark_reads_it(tmp_path):
    text = "# note\n\nspark.master   spark://host:7077\nspark.a=1\n spark.b : two words  \n! other note\n"
    found = {"spark.master": REMOTE, "spark.a": "1", "spark.b": "two words"}
    assert spark_defaults(text) == found
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "spark-defaults.conf").write_text(text)
    assert read_defaults(home, {}) == read_defaults(tmp_path, {"SPARK_HOME": str(home)}) == found
    assert read_defaults(home, {"SPARK_CONF_DIR": str(tmp_path)}) == {}


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        ({}, {"SPARK_REMOTE": "sc://host"}),
        ({}, {"SPARK_API_MODE": "connect"}),
        ({"spark.remote": "sc://host"}, {}),
        ({"spark.api.mode": "connect"}, {}),
    ],
)
def test_spark_connect_is_refused_however_it_is_asked_for(settings, environment):
    with pytest.raises(ConfigError, match=r"asks for Spark Connect, which cannot run the function"):
        refuse_connect(settings, environment)
    refuse_connect({"spark.api.mode": "classic"}, {})


def test_a_session_of_spark_connect_is_refused():
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(ConfigError, match="pass a classic session"):
        refuse_connect_session(session)


def test_a_given_python_of_the_workers_is_kept_and_a_setting_comes_before_the_variable():
    given = {"PYSPARK_PYTHON": "/theirs"}
    assert given_python({}, {}) == {}
    assert given_python(given, {}) == given
    assert given_python(given, {"spark.pyspark.python": "/set"}) == {"PYSPARK_PYTHON": "/set"}


def test_a_pyspark_that_cannot_bound_batches_is_refused_with_the_versions_that_can(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    monkeypatch.delitem(sys.modules, "headrace.streams.spark.read_limits", raising=False)
    with pytest.raises(ConfigError, match=r"cannot bound the micro-batches.*use PySpark 4\.2 or 4\.3"):
        importlib.import_module("headrace.streams.spark.read_limits")


def test_java_gets_one_collector_of_garbage():
    assert "-XX:+UseSerialGC" in java_options("-Dtheirs=1")
    with_theirs = java_options("-XX:+UseG1GC")
    assert "-XX:+UseG1GC" in with_theirs and "SerialGC" not in with_theirs
