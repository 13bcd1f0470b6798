"""The status of a capture, for people and for the console. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from headrace.capture.source import Lag
from headrace.capture.state import CaptureState, TableState

__all__ = ["Lags", "Rates", "State", "Status", "TableStatus", "state_of", "table_status"]

# snapshot: tables are being read, changes are followed; streaming: all tables are whole; stopped: see `error`
State = Literal["starting", "snapshot", "streaming", "paused", "reconnecting", "stopped"]


_ALIVE_MS = 20_000  # of silence; a host says every few seconds what it runs


def state_of(said: Mapping[str, Any] | None, now_ms: float, *, paused: bool = False) -> str:
    """The state in a status; or that nobody runs it, as its process said at its end, or by its silence."""
    if said is not None and not said.get("ended") and now_ms - said["at_ms"] < _ALIVE_MS:
        return str(said["state"])
    return "paused" if paused else "not running"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """A table's snapshot: rows read of about `total`, the rate of late, and how long the rest may take."""

    phase: str
    rows: int
    total: int | None = None
    rows_per_s: float | None = None
    seconds_left: float | None = None

    @property
    def share(self) -> float | None:
        """How much of the table has been read, from 0 to 1; None if nobody knows."""
        if self.phase != "rows":
            return 1.0
        return None if not self.total else min(self.rows / self.total, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A capture as of `at_ms`. `error` is why it stopped, or what it cannot reach; never a password."""

    name: str
    state: State
    at_ms: int
    url: str = ""
    connector: str = ""
    error: str | None = None
    error_at_ms: int | None = None
    reconnects: int = 0
    changes: int = 0
    last_change_ms: int | None = None
    lag: Lag = field(default_factory=Lag)
    tables: Mapping[str, TableStatus] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        said = asdict(self)
        for name, each in self.tables.items():
            said["tables"][name]["share"] = each.share
        return said


def table_status(state: TableState, total: int | None, rows_per_s: float | None) -> TableStatus:
    """A table's progress; the time left is that of the rows left at the rate of late."""
    left = max(total - state.rows, 0) if total is not None else None
    seconds = left / rows_per_s if left is not None and rows_per_s else None
    busy = state.phase == "rows"
    return TableStatus(
        phase=state.phase,
        rows=state.rows,
        total=total if busy else None,
        rows_per_s=rows_per_s if busy else None,
        seconds_left=seconds if busy else None,
    )


class Rates:
    """Rows a second of the snapshots under way, over about the last ten seconds."""

    _SPAN_S = 10.0

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[float, int]]] = {}

    def note(self, state: CaptureState, now_s: float) -> dict[str, float]:
        """The rate of each table that is being read."""
        found = {}
        for table, each in state.tables.items():
            seen = self._seen.setdefault(table, [])
            if seen and each.rows < seen[-1][1]:
                seen.clear()
            seen.append((now_s, each.rows))
            while len(seen) > 2 and now_s - seen[1][0] >= self._SPAN_S:
                del seen[0]
            (began, first), (ended, last) = seen[0], seen[-1]
            if ended > began:
                found[table] = (last - first) / (ended - began)
        return found


class Lags:
    """Says in seconds, too, how far behind a source is that only knows it in bytes.

    What was not read yet was committed after the last transaction that was, and after the last look
    at which there was nothing to read.
    """

    def __init__(self, began_ms: int) -> None:
        self._began_ms = began_ms

    def note(self, lag: Lag, read_us: int, now_ms: int) -> Lag:
        """The lag with its seconds; `read_us` is when the last transaction that was read was committed."""
        if lag.seconds is not None:
            return lag
        if lag.is_none:
            self._began_ms = now_ms
        self._began_ms = max(self._began_ms, read_us // 1000)
        return replace(lag, seconds=0.0 if lag.is_none else max(now_ms - self._began_ms, 0) / 1000)
