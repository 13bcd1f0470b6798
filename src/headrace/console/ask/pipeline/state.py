"""The graph of an application with what moves in it: rates, watermarks, delays and states. Pure."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.app.status import (
    STOPPED,
    AppDescription,
    AppStatus,
    OperatorState,
    PipelineNode,
    QueryStatus,
    rebuild_progress,
    records_per_s,
)
from headrace.console.api import format_rfc3339
from headrace.console.ask.lag_history import GroupLag

__all__ = ["AppSnapshot", "CounterRates", "graph_state", "queries_state", "rebuild_state"]

_ENDED = ("failed", STOPPED)
_RATE_SPAN_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSnapshot:
    """What is known of an application at one moment.

    `views` is what moves of each view, `rates` how fast topics and views grow by the id
    of their node, `lags` how far groups are behind, `states` what operators keep by their node.
    """

    status: AppStatus | None
    running: bool
    now: float
    views: Mapping[str, Mapping[str, Any]]
    rates: Mapping[str, float | None]
    lags: Mapping[str, GroupLag]
    states: Mapping[str, OperatorState] = field(default_factory=dict)

    def query(self, name: str) -> QueryStatus | None:
        return None if self.status is None else self.status.queries.get(name)

    def state(self, name: str) -> str | None:
        """What the query does; one of a driver that is gone has stopped, whatever it said last."""
        query = self.query(name)
        if query is None:
            return None
        return query.state if self.running or query.state in _ENDED else STOPPED


def graph_state(app: AppDescription, snapshot: AppSnapshot) -> dict[str, Any]:
    """Nodes and edges; a figure that makes no sense for a node, or is not known, is null."""
    groups = {each.topic: each.group for each in app.streams}
    queries = {each.name: each.query for each in app.views}
    nodes = [
        {**asdict(node), **_EMPTY, **dict(_figures(node, app, groups, queries, snapshot))}
        for node in app.nodes
    ]
    return {"nodes": nodes, "edges": [{"from": each.tail, "to": each.head} for each in app.edges]}


_EMPTY: dict[str, Any] = dict.fromkeys(
    (
        "state",
        "records_per_s",
        "watermark",
        "delay_s",
        "lag_records",
        "batch_seconds",
        "buckets",
        "tasks",
        "put_ms",
        "state_rows",
        "state_bytes",
        "state_skew",
        "state_oldest",
        "error",
    )
)


def _figures(
    node: PipelineNode,
    app: AppDescription,
    groups: Mapping[str, str],
    queries: Mapping[str, str],
    snapshot: AppSnapshot,
) -> Iterator[tuple[str, Any]]:
    yield from _of_state(snapshot.states.get(node.id))
    match node.kind:
        case "topic":
            yield "records_per_s", snapshot.rates.get(node.id)
        case "query":
            yield from _of_query(node.name, groups.get(node.name), snapshot)
        case "step" | "window" | "join" | "table" | "group":
            query = queries.get(node.name, "")
            view = snapshot.views.get(node.name, {})
            yield "state", snapshot.state(query)
            yield "records_per_s", _query_rate(query, snapshot)
            yield "watermark", _watermark(snapshot.query(query))
            yield "delay_s", view.get("freshness_s")
        case "view":
            view = snapshot.views.get(node.name, {})
            yield "state", snapshot.state(queries.get(node.name, ""))
            yield "records_per_s", snapshot.rates.get(node.id)
            yield "watermark", view.get("watermark")
            yield "delay_s", view.get("freshness_s")
            yield "lag_records", view.get("lag_records")
            yield "error", view.get("problem")
        case "hook":
            yield from _of_group(snapshot.lags.get(f"{app.app}.hooks.{node.name}"))


def _of_query(name: str, group: str | None, snapshot: AppSnapshot) -> Iterator[tuple[str, Any]]:
    query = snapshot.query(name)
    yield "state", snapshot.state(name)
    if query is not None:
        yield "records_per_s", records_per_s(query, snapshot.now) if snapshot.running else 0.0
        yield "watermark", _watermark(query)
        yield "batch_seconds", query.batch_seconds
        yield "buckets", query.buckets or None
        yield "tasks", query.tasks or None
        yield "put_ms", query.put_ms
        yield "error", query.error
    if group is not None:
        yield from _of_group(snapshot.lags.get(group))


def _query_rate(name: str, snapshot: AppSnapshot) -> float | None:
    query = snapshot.query(name)
    if query is None:
        return None
    return records_per_s(query, snapshot.now) if snapshot.running else 0.0


def _of_state(state: OperatorState | None) -> Iterator[tuple[str, Any]]:
    if state is not None:
        yield "state_rows", state.rows
        yield "state_bytes", sum(state.bytes.values())
        yield "state_skew", None if state.skew is None else round(state.skew, 2)
        oldest_us = state.oldest_us
        yield "state_oldest", None if oldest_us is None else format_rfc3339(oldest_us // 1000)


def _of_group(lag: GroupLag | None) -> Iterator[tuple[str, Any]]:
    if lag is not None:
        yield "delay_s", lag.lag_seconds
        yield "lag_records", lag.lag_records


def _watermark(query: QueryStatus | None) -> str | None:
    return None if query is None or query.watermark_us is None else format_rfc3339(query.watermark_us // 1000)


def queries_state(snapshot: AppSnapshot) -> list[dict[str, Any]]:
    """Every query with its counts, as the driver noted them last."""
    if snapshot.status is None:
        return []
    return [
        {
            "name": name,
            "state": snapshot.state(name),
            "batch_id": query.batch_id,
            "records": query.records,
            "batch_records": query.batch_records,
            "batch_seconds": query.batch_seconds,
            "records_per_s": records_per_s(query, snapshot.now) if snapshot.running else 0.0,
            "watermark": _watermark(query),
            "restarts": query.restarts,
            "error": query.error,
            "positions": dict(query.positions),
            "buckets": query.buckets,
            "tasks": query.tasks,
            "put_ms": query.put_ms,
            "updated_at": query.updated_at,
        }
        for name, query in snapshot.status.queries.items()
    ]


def rebuild_state(snapshot: AppSnapshot) -> dict[str, Any] | None:
    """The last rebuild and how far it is; None if there was none since the driver started."""
    if snapshot.status is None or snapshot.status.rebuild is None:
        return None
    return {**asdict(snapshot.status.rebuild), "progress": rebuild_progress(snapshot.status)}


@dataclass(slots=True)
class CounterRates:
    """Counters by name over the last ten seconds; a rate needs two looks."""

    _looks: deque[tuple[int, Mapping[str, int]]] = field(default_factory=deque)

    def add(self, now_ms: int, counters: Mapping[str, int]) -> None:
        """What the counters are now."""
        self._looks.append((now_ms, counters))
        while len(self._looks) > 2 and self._looks[1][0] <= now_ms - _RATE_SPAN_MS:
            self._looks.popleft()

    def of(self, name: str) -> float | None:
        """By how much it grows in a second; None if that is not known, 0 if it started over."""
        seen = [(at, counters[name]) for at, counters in self._looks if name in counters]
        if len(seen) < 2 or seen[-1][0] == seen[0][0]:
            return None
        return max(0.0, 1000 * (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0]))
