"""Peers whose jars come from Maven Central, kept in a cache outside of the tree."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from headrace.errors import HeadraceError

__all__ = ["Artifact", "PeerUnavailable", "fetch_jars", "run_tool"]

Artifact = tuple[str, str, str]  # group, name, version


class PeerUnavailable(HeadraceError):  # noqa: N818 - a circumstance to skip on, not a fault
    """The peer cannot be run on this machine; the message says why and what would help."""


def fetch_jars(peer: str, folder_name: str, artifacts: Sequence[Artifact], cache: Path | None = None) -> Path:
    """The folder that holds the artifacts and all they need, fetched through Maven the first time.

    A folder under its final name is complete: it is built aside and renamed, so
    processes may fetch at once and one that is killed leaves nothing half-done.
    """
    folder = (cache or _peer_cache()) / folder_name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder.parent) as scratch:
        jars = _copy_dependencies(peer, artifacts, Path(scratch))
        with contextlib.suppress(OSError):  # another process was faster; its folder is as good
            jars.rename(folder)
    if not folder.is_dir():
        raise PeerUnavailable(f"cannot keep {peer}'s jars in {folder}; make its parent writable")
    return folder


def run_tool(command: list[str], *, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; raises PeerUnavailable if that takes too long."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"`{Path(command[0]).name}` did not finish in {timeout_s} s") from None


def _peer_cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "headrace" / "peers"


def _copy_dependencies(peer: str, artifacts: Sequence[Artifact], scratch: Path) -> Path:
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable(
            f"{peer}'s jars come through Maven, and there is no `mvn` on the path; install it"
        )
    (scratch / "pom.xml").write_text(_pom(artifacts))
    jars = scratch / "jars"
    command = [maven, "-q", "-B", "-f", str(scratch / "pom.xml"), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
    done = run_tool(command, timeout_s=600)
    if done.returncode != 0:
        raise PeerUnavailable(f"Maven could not fetch {peer}: {_first_error(done.stdout)}")
    return jars


def _pom(artifacts: Sequence[Artifact]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in artifacts
    )
    project = "<groupId>headrace.peers</groupId><artifactId>peer</artifactId><version>1</version>"
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"{project}<dependencies>{dependencies}</dependencies></project>"
    )


def _first_error(output: str) -> str:
    errors = (line for line in output.splitlines() if line.startswith("[ERROR]"))
    return next(errors, "it gave no reason")[:500]
