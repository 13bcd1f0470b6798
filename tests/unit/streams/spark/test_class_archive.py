"""Spark's classes, kept: which options Java gets, and from where."""

import sys
from pathlib import Path

import pytest

from headrace.java import JavaHome
from headrace.streams.spark.class_archive import archive_options, archive_place

JAVA = JavaHome(home=Path("/java"), runtime=Path("/java"), version=17, origin="PATH")


@pytest.fixture
def environment(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))


def kept(java):
    place = archive_place(java)
    place.parent.mkdir(parents=True)
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


def test_a_path_that_spark_would_split_is_not_given(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "with a space"))
    kept(JAVA)
    assert archive_options(JAVA) == ()
