"""Spark's classes are archived once for a Python environment, by one process, in the background."""

import contextlib
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.app.options import RunOptions
from headrace.app.processes import sidecars
from headrace.app.processes.sidecars import start_class_archiver
from headrace.app.run import class_archive
from headrace.java import JavaHome
from headrace.streams.spark.class_archive import archive_place

JAVA = JavaHome(home=Path("/java"), runtime=Path("/java"), version=17, origin="PATH")


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sidecars, "find_java", lambda: JAVA)
    found = archive_place(JAVA)
    found.parent.mkdir(parents=True)
    return found


@pytest.fixture
def started(monkeypatch):
    """The commands that would be run, as processes that only wait for their end."""
    commands = []
    begin = subprocess.Popen

    def sleeper(command, **options):
        commands.append(command)
        return begin([sys.executable, "-c", "import sys; sys.stdin.read()"], **options)

    monkeypatch.setattr(sidecars.subprocess, "Popen", sleeper)
    return commands


def start(options):
    said = []
    with contextlib.ExitStack() as cleanup:
        start_class_archiver(options, said.append, cleanup)
    return said


def test_a_run_that_is_meant_to_last_starts_the_archiver_and_ends_it(place, started, tmp_path):
    assert "so that the next start is faster" in start(RunOptions(data=tmp_path))[0]
    assert [command[1:] for command in started] == [["-m", "headrace.app.run.class_archive", "--background"]]


@pytest.mark.parametrize("options", [{"master": "spark://there:7077"}, {"until_caught_up": True}])
def test_neither_a_cluster_nor_a_short_run_starts_it(place, started, tmp_path, options):
    assert start(RunOptions(data=tmp_path, **options)) == []
    assert started == []


def test_classes_that_are_archived_are_not_archived_again(place, started, tmp_path):
    place.touch()
    assert start(RunOptions(data=tmp_path)) == []
    assert started == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_environment_that_cannot_be_written_is_left_alone(place, started, tmp_path):
    place.parent.chmod(0o500)
    assert start(RunOptions(data=tmp_path)) == []


def test_of_two_archivers_one_does_nothing(place):
    with (place.parent / "spark-classes.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not class_archive.archive_classes(place)
    assert not place.exists()


def test_what_a_killed_archiver_left_is_removed(place, monkeypatch):
    left = place.parent / "unfinished-1"
    left.mkdir()
    (left / place.name).write_bytes(b"half")
    monkeypatch.setattr(class_archive, "_write_archive", lambda _: not left.exists())
    assert class_archive.archive_classes(place)
