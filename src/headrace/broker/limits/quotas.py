"""Quotas of producers and consumers by client id, in bytes a second.

Enforced as Kafka does: a request is served, its answer tells how long the client
shall wait, and the connection's next request waits that long, whether the client
heeds it or not. All connections of a client id share its quota. A second's worth
may come at once; what exceeds it is owed, and waited for.

Quotas are set through Kafka's protocol and kept in `quotas.json`; where none is
set for a client id, nor as the default, the broker's settings hold (0: no limit).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from headrace.broker.log import WorkerThreads
from headrace.broker.metrics import Metrics
from headrace.broker.settings import BrokerSettings
from headrace.clock import Clock
from headrace.errors import RequestError
from headrace.storage import Disk
from headrace.storage.disk import CheckedFile
from headrace.wire import ErrorCode

__all__ = [
    "CONSUMER",
    "KEYS",
    "PRODUCER",
    "Bucket",
    "Quotas",
    "changed",
    "quotas_file",
    "read_quotas",
    "write_quotas",
]

PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
KEYS = (PRODUCER, CONSUMER)
FORMAT_VERSION = 1
MOST_THROTTLE_MS = 10_000
MOST_CLIENTS = 10_000

# The client id, or None for those without a quota of their own, and its rates by key.
Table = dict[str | None, dict[str, float]]


class Bucket:
    """Bytes that a client id has moved beyond its rate."""

    __slots__ = ("_at_ms", "_level")

    def __init__(self, now_ms: int) -> None:
        self._level = 0.0
        self._at_ms = now_ms

    def charge(self, size: int, rate: float, now_ms: int) -> int:
        """Takes bytes into account; for how long their client shall wait, in ms."""
        drained = (now_ms - self._at_ms) / 1000 * rate
        self._level = max(0.0, self._level - drained) + size
        self._at_ms = now_ms
        owed = self._level - rate
        return int(min(MOST_THROTTLE_MS, 1000 * owed / rate)) if owed > 0 else 0


def changed(table: Table, client_id: str | None, changes: Mapping[str, float | None]) -> Table:
    """The table with some rates of a client id set, or removed (None); RequestError if one cannot be."""
    for key, rate in changes.items():
        if key not in KEYS:
            raise RequestError(
                f"quota {key!r} is not known here; there are {', '.join(KEYS)}",
                code=ErrorCode.invalid_request,
            )
        if rate is not None and not rate > 0:
            raise RequestError(
                f"{key} is {rate}; give a number above 0, or remove it", code=ErrorCode.invalid_request
            )
    rates = {**table.get(client_id, {}), **changes}
    kept = {key: rate for key, rate in rates.items() if rate is not None}
    others = {name: each for name, each in table.items() if name != client_id}
    if kept and len(others) >= MOST_CLIENTS:
        raise RequestError(f"there are {MOST_CLIENTS} quotas already", code=ErrorCode.policy_violation)
    return {**others, client_id: kept} if kept else others


class Quotas:
    """Says how long clients shall wait. Event loop only."""

    def __init__(
        self, settings: BrokerSettings, clock: Clock, metrics: Metrics, threads: WorkerThreads, disk: Disk
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._threads = threads
        self._file = quotas_file(disk, Path(settings.data))
        self._buckets: OrderedDict[tuple[str, str], Bucket] = OrderedDict()
        self._altering = asyncio.Lock()
        self.table: Table = {}

    async def load(self) -> None:
        """Reads what was set; CorruptionError if it cannot be read."""
        self.table = await self._threads.run(read_quotas, self._file)

    async def alter(
        self, client_id: str | None, changes: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        """Puts other rates in force, once they are on disk; RequestError, or OSError if the disk refused."""
        async with self._altering:
            table = changed(self.table, client_id, changes)
            if not validate_only:
                await self._threads.run(write_quotas, self._file, table)
                self.table = table

    @property
    def are_none(self) -> bool:
        """Whether every client may move as much as it likes."""
        settings = self._settings
        return not (self.table or settings.quota_producer_bytes_per_s or settings.quota_consumer_bytes_per_s)

    def rate(self, key: str, client_id: str) -> float:
        """Bytes a second that a client may move; 0 if as many as it likes."""
        for name in (client_id, None) if self.table else ():
            rate = self.table.get(name, {}).get(key)
            if rate is not None:
                return rate
        settings = self._settings
        return settings.quota_producer_bytes_per_s if key == PRODUCER else settings.quota_consumer_bytes_per_s

    def charge(self, key: str, client_id: str | None, size: int) -> int:
        """Counts bytes that a client moved; for how long it shall wait, in ms."""
        rate = self.rate(key, client_id or "")
        if not rate or not size:
            return 0
        throttle_ms = self._bucket((key, client_id or "")).charge(size, rate, self._clock.monotonic_ms())
        if throttle_ms:
            self._metrics.throttled.add(throttle_ms / 1000, key)
        return throttle_ms

    def _bucket(self, which: tuple[str, str]) -> Bucket:
        bucket = self._buckets.get(which)
        if bucket is None:
            bucket = self._buckets[which] = Bucket(self._clock.monotonic_ms())
            if len(self._buckets) > MOST_CLIENTS:
                self._buckets.popitem(last=False)  # the one that was quiet for longest
        else:
            self._buckets.move_to_end(which)
        return bucket


def quotas_file(disk: Disk, directory: Path) -> CheckedFile:
    """Where the quotas of a data directory are kept."""
    return CheckedFile(
        disk,
        directory / "quotas.json",
        fields=("version", "quotas"),
        remedy="restore it from a copy, or remove it and set quotas again",
    )


def write_quotas(file: CheckedFile, table: Table) -> None:
    """Returns when the quotas are on disk; OSError if the disk refuses, and the old ones stay."""
    entries = [{"client_id": client_id, **rates} for client_id, rates in table.items()]
    file.write({"version": FORMAT_VERSION, "quotas": entries})


def read_quotas(file: CheckedFile) -> Table:
    """What was set; CorruptionError if the file is not what was written."""
    found = file.read()
    if found is None:
        return {}
    version = found.fields.get("version")
    if version != FORMAT_VERSION:
        raise file.damaged(f"it has format version {version}, this Headrace reads {FORMAT_VERSION}")
    try:
        table = {
            each["client_id"]: {key: float(each[key]) for key in KEYS if key in each}
            for each in found.fields["quotas"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise file.damaged(f"it is not what was written ({error})") from error
    file.add_checksum(found)
    return table
