"""Which settings a session of ours gets; pure but for one file that is read.

There are three kinds. Times are in UTC, always: results depend on it. Some settings are ours to
choose where nobody else did, for Spark's own defaults are meant for other loads. Everything else
is the user's, from wherever Spark takes it: `--conf`, `spark-submit`, `spark-defaults.conf`, or
the session that is there.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from headrace.errors import ConfigError

__all__ = [
    "TIME_ZONE",
    "is_local",
    "parse_settings",
    "read_defaults",
    "refuse_connect",
    "refuse_connect_session",
    "session_settings",
    "spark_defaults",
]

TIME_ZONE = "spark.sql.session.timeZone"
_UTC = ("UTC", "Etc/UTC", "Z", "GMT", "+00:00")
_SHUFFLES = "spark.sql.shuffle.partitions"
_STATE = "spark.sql.streaming.stateStore."

_PREFERRED = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Workers are forked with everything imported.
    "spark.python.daemon.module": "headrace.streams.spark.worker_daemon",
    f"{_STATE}providerClass": ("org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"),
    f"{_STATE}rocksdb.changelogCheckpointing.enabled": "true",
}

_PREFERRED_LOCALLY = {
    _SHUFFLES: "2",
    # Loopback only, and whatever the machine's host name resolves to.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # On a local disk the default manager starts a process (readlink) for each file it renames.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

_CONNECT = (
    "Spark Connect, which cannot run the function that takes a batch's output; {fix}, and name the "
    "cluster itself as the master"
)
_LINE = re.compile(r"\s*(?P<key>[^\s=:#!][^\s=:]*)\s*[\s=:]\s*(?P<value>.*?)\s*")


def is_local(master: str | None) -> bool:
    """Whether tasks run on this machine, with its files and its loopback, and in the driver's folder."""
    return master is None or master == "local" or master.startswith("local[")


def session_settings(master: str | None, chosen: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session on `master` besides those that were `chosen`, which all stand.

    Executors of "local-cluster" are on this machine, and so share its disk and its loopback.
    """
    on_this_machine = master is None or master.startswith("local")
    preferred = _PREFERRED | (_PREFERRED_LOCALLY if on_this_machine else {})
    return {key: value for key, value in preferred.items() if key not in chosen} | {TIME_ZONE: "UTC"}


def parse_settings(given: Iterable[str]) -> dict[str, str]:
    """The settings in several "key=value", as `--conf` has them; raises ConfigError."""
    found: dict[str, str] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key.startswith("spark."):
            raise ConfigError(
                f"--conf {each}: a setting of Spark is key=value, such as spark.executor.memory=2g"
            )
        found[key] = value
    if found.get(TIME_ZONE, "UTC") not in _UTC:
        raise ConfigError(
            f"--conf {TIME_ZONE}={found[TIME_ZONE]}: Headrace counts in UTC; leave it out, and convert times "
            "where they are shown"
        )
    return found


def refuse_connect(chosen: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
    """Raises ConfigError where a new session would be one of Spark Connect."""
    given = os.environ if environment is None else environment
    asked = {
        "SPARK_REMOTE": given.get("SPARK_REMOTE"),
        "SPARK_API_MODE=connect": given.get("SPARK_API_MODE", "").lower() == "connect",
        "spark.remote": chosen.get("spark.remote"),
        "spark.api.mode=connect": chosen.get("spark.api.mode", "").lower() == "connect",
    }
    for name, is_set in asked.items():
        if is_set:
            raise ConfigError(f"{name} asks for {_CONNECT.format(fix='unset it')}")


def refuse_connect_session(spark: object) -> None:
    """Raises ConfigError for a session of Spark Connect."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigError(f"this is a session of {_CONNECT.format(fix='pass a classic session')}")


def spark_defaults(text: str) -> dict[str, str]:
    """The settings in a `spark-defaults.conf`."""
    found = (_LINE.fullmatch(line) for line in text.splitlines())
    return {line["key"]: line["value"] for line in found if line is not None}


def read_defaults(spark_home: Path, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Those of the file that Spark itself will read; none where there is none."""
    given = os.environ if environment is None else environment
    folder = Path(given.get("SPARK_CONF_DIR") or Path(given.get("SPARK_HOME") or spark_home, "conf"))
    try:
        return spark_defaults((folder / "spark-defaults.conf").read_text())
    except OSError:
        return {}
