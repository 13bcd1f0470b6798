"""An earlier version of Headrace, taken from this repository's history and run beside this one."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
KERNELS = Path("src/headrace/kernels")
TIMEOUT_S = 1_800
BEFORE_TABLES = "e04cf4c"
"""The last version with streams of single topics only: no tables, captures or entities."""
WITH_CAPTURES = "f239c0a"
"""A version with captures, entities and derived systems."""


class EarlierVersion:
    """Its sources, with its compiled part; it runs on the libraries that this version has."""

    def __init__(self, commit: str, folder: Path) -> None:
        self.commit, self.sources = commit, folder / "src"
        _check_out(commit, folder)
        _compile(folder)

    @contextmanager
    def chosen(self) -> Iterator[None]:
        """What `python -m headrace` starts in this block is the earlier version."""
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = str(self.sources)
        try:
            yield
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before

    def run(self, *arguments: str, cwd: Path | None = None) -> str:
        """A command of the earlier version; what it printed."""
        with self.chosen():
            return run_now(*arguments, cwd=cwd)


def run_now(*arguments: str, cwd: Path | None = None) -> str:
    """A command of this version; what it printed."""
    done = attempt(*arguments, cwd=cwd)
    assert done.returncode == 0, f"{shlex.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout


def attempt(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command of this version, which may fail."""
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


@contextmanager
def started(*arguments: str) -> Iterator[None]:
    """A server of the chosen version, once it is ready; it is stopped cleanly at the end of the block."""
    command = [sys.executable, "-m", "headrace", *arguments, "--json", "--until-stdin-closes"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            assert process.stdout.readline(), f"{shlex.join(arguments)} did not start"
            yield
        finally:
            process.stdin.close()
            assert process.wait(TIMEOUT_S) == 0


def run_file(file: Path, *arguments: str) -> str:
    """A Python file on the chosen version; what it printed."""
    return subprocess.run(
        [sys.executable, str(file), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    ).stdout


Versions = Callable[[str], EarlierVersion]


def versions_in(folder: Path) -> Versions:
    """Makes each version once; skips the test where the history is not there."""
    made: dict[str, EarlierVersion] = {}

    def version(commit: str) -> EarlierVersion:
        if commit not in made:
            _require(commit)
            made[commit] = EarlierVersion(commit, folder / commit)
        return made[commit]

    return version


def _require(commit: str) -> None:
    asked = subprocess.run(
        ["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=REPOSITORY, capture_output=True
    )
    if asked.returncode:
        pytest.skip(f"runs version {commit} from the history, which is not in this copy of the repository")


def _check_out(commit: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", commit, "src"], cwd=REPOSITORY, capture_output=True, check=True
    )
    subprocess.run(["tar", "x"], cwd=folder, input=archive.stdout, check=True)


def _compile(folder: Path) -> None:
    """As `make setup` does."""
    compiler: Sequence[str] = shlex.split(os.environ.get("CC", "")) or (
        sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline", "-s",
    )  # fmt: skip
    flags = ("-std=c11", "-O2", "-shared", "-fPIC", "-o", KERNELS / "_kernels.so")
    sources = sorted((folder / KERNELS).glob("*.c"))
    caches = {"ZIG_GLOBAL_CACHE_DIR": str(folder / "zig"), "ZIG_LOCAL_CACHE_DIR": str(folder / "zig")}
    subprocess.run(
        [*compiler, *flags, *sources], cwd=folder, env={**os.environ, **caches}, check=True, timeout=TIMEOUT_S
    )
