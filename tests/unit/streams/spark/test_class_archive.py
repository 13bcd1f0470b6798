"""Spark's classes, kept: which options Java gets, and from where."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from headrace.java import JavaHome
from headrace.streams.spark.class_archive import archive_options, archive_place, outdated_archives

JAVA = JavaHome(home=Path("/java"), runtime=Path("/java"), version=17, origin="PATH")


@pytest.fixture
def environment(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))


def kept(java):
    place = archive_place(java)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()
    return place


def test_without_an_archive_java_starts_as_it_always_did(environment):
    assert archive_options(JAVA) == ()


def test_an_archive_is_used_and_what_java_thinks_of_it_stays_off_standard_output(environment):
    place = kept(JAVA)
    options = archive_options(JAVA)
    assert f"-XX:SharedArchiveFile={place}" in options
    assert "-Xlog:disable" in options


def test_each_java_has_an_archive_of_its_own(environment):
    kept(JAVA)
    other = JavaHome(home=Path("/java"), runtime=Path("/java"), version=21, origin="PATH")
    assert archive_options(other) == ()


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """A Spark of two jars."""
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    for name in ("core.jar", "sql.jar"):
        (jars / name).write_bytes(b"classes")
    monkeypatch.setenv("SPARK_HOME", str(jars.parent))
    return jars


def test_an_archive_of_other_jars_or_of_another_folder_is_not_taken_for_that_of_these(
    environment, spark, tmp_path, monkeypatch
):
    place = kept(JAVA)
    assert archive_place(JAVA) == place
    (spark / "sql.jar").write_bytes(b"newer classes")
    assert archive_options(JAVA) == ()
    (spark / "sql.jar").unlink()
    assert archive_options(JAVA) == ()
    shutil.copytree(spark.parent, tmp_path / "moved")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "moved"))
    assert archive_place(JAVA) != place


def test_a_java_that_was_updated_has_an_archive_of_its_own(environment, spark, tmp_path):
    java = JavaHome(home=Path("/java"), runtime=tmp_path / "java", version=17, origin="PATH")
    modules = java.runtime / "lib" / "modules"
    modules.parent.mkdir(parents=True)
    modules.write_bytes(b"17.0.1")
    kept(java)
    assert archive_options(java)
    modules.write_bytes(b"17.0.19")
    assert archive_options(java) == ()


def test_all_but_the_newest_others_may_go(environment):
    place = kept(JAVA)
    others = [place.with_name(f"spark-classes-java17-{number}.jsa") for number in range(4)]
    for number, each in enumerate(others):
        each.touch()
        os.utime(each, (number, number))
    assert outdated_archives(place) == others[:2]


def test_a_path_that_spark_would_split_is_not_given(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "with a space"))
    kept(JAVA)
    assert archive_options(JAVA) == ()
