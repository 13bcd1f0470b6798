"""Where and how an application runs: what `headrace run` and `headrace verify` are given."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Literal

from headrace.client import Connection, Identity, require_log
from headrace.objects import is_url, require_supported

__all__ = ["RunOptions", "data_place"]

_APPLICATIONS = Path(".headrace")


def data_place(given: str | None, app: str) -> tuple[Path, str | None]:
    """The data folder for what was given as --data, and the URL, if it is one.

    Raises ConfigError if nothing can be kept at the URL.
    """
    if given is None or not is_url(given):
        return Path(given) if given else _APPLICATIONS / app, None
    require_supported("--data", given)
    return (_APPLICATIONS / f"{app}.{sha256(given.encode()).hexdigest()[:12]}").absolute(), given


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Where an application runs and keeps its things.

    `log` is where an embedded log listens; without it, where it did last.
    `identity` is who the application is towards the log at `bootstrap`; an embedded log
    asks nobody. `conf` are settings of Spark. `rebuild` rebuilds all views, `rebuild_views`
    these only; with `compare` what differs from the old rows is shown first, and the new ones wait for a
    decision. `buckets` is the number of buckets that state is spread over; without it, that of before.
    `from_snapshot` is the folder or URL of a snapshot to start from, where nothing has run yet.
    `http` is the address of the console, which is not started without one.
    `max_records_per_batch` and
    `max_bytes_per_batch` are those of the source, for every query; 0 means no limit. With a
    local Spark, what is larger than `spill_bytes` goes from one of its processes to the next
    by files; 0 means nothing. Making a file costs as much as taking some kilobytes through
    Spark. `sinks` says who writes the results: "executors", each task its own, or the "driver";
    without it, the executors of a cluster, and the driver of a local Spark.

    With `url`, checkpoints and state are kept there, and `data` is a folder of this machine that
    holds nothing which is needed again.
    """

    data: Path
    url: str | None = None
    bootstrap: str | None = None
    log: str | None = None
    identity: Identity = field(default_factory=Identity)
    master: str | None = None
    cores: int = 2
    conf: Mapping[str, str] = field(default_factory=dict)
    rebuild: bool = False
    rebuild_views: tuple[str, ...] = ()
    compare: bool = False
    buckets: int | None = None
    from_snapshot: str | None = None
    until_caught_up: bool = False
    trigger_ms: int = 0
    max_restarts: int = 5
    max_records_per_batch: int = 4_000_000
    max_bytes_per_batch: int = 256 << 20
    spill_bytes: int = 32 << 10
    sinks: Literal["driver", "executors"] | None = None
    file: Path | None = None
    http: str | None = None

    @property
    def limits(self) -> dict[str, int]:
        """What a micro-batch takes at most, as the source's options have it."""
        return {
            "max_records_per_batch": self.max_records_per_batch,
            "max_bytes_per_batch": self.max_bytes_per_batch,
        }

    def query_folder(self, name: str) -> Path:
        """Where one query keeps its manifest and its checkpoint."""
        return self.data / "queries" / name

    def wait_for_log(self) -> Connection | None:
        """How the log that was named is reached, once it serves us; None if it is the embedded one."""
        if not self.bootstrap:
            return None
        connection = Connection(bootstrap_servers=self.bootstrap, **self.identity.identity_fields())
        require_log(connection)
        return connection
