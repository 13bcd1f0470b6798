"""Where the peers of the benchmarks live: environments of their own and jars, in a cache outside the tree."""

import os
import sys
from pathlib import Path

from headrace.testing.maven import Artifact, PeerUnavailable, fetch_jars, run_tool

__all__ = ["SPARK_400", "PeerUnavailable", "jars", "python_with"]

# The version for which there is a connector to Kafka.
SPARK_400 = ("spark400", "pyspark==4.0.0", "pyarrow", "pandas")


def python_with(name: str, *packages: str) -> str:
    """The interpreter of an environment with the packages, made if there is none yet, or PeerUnavailable."""
    folder = _cache() / "venv" / name
    ready = folder / ".ready"
    if not ready.exists() or ready.read_text().split() != [*packages]:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *packages],
        ):
            done = run_tool(command, timeout_s=900)
            if done.returncode:
                raise PeerUnavailable(
                    f"pip could not install {' '.join(packages)}: {done.stderr.strip()[-300:]}"
                )
        ready.write_text(" ".join(packages))
    return str(folder / "bin" / "python")


def jars(name: str, artifacts: tuple[Artifact, ...], wanted: tuple[str, ...]) -> str:
    """The paths of those jars whose names begin as wanted, separated by commas."""
    folder = fetch_jars(name, name, artifacts)
    return ",".join(str(each) for each in sorted(folder.iterdir()) if each.name.startswith(wanted))


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "headrace"
