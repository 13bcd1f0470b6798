"""The graph of an application with what moves in it: rates, watermarks, delays and states. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headrace.app.description import AppDescription, Node
from headrace.app.status import STOPPED, AppStatus, QueryStatus, rebuild_progress, records_per_s
from headrace.console.lag_history import GroupLag
from headrace.console.parameters import format_time

__all__ = ["Moving", "graph_state", "queries_state", "rebuild_state"]

_ENDED = ("failed", STOPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """What is known of an application at one moment.

    `views` is what moves of each view, `rates` how fast topics and views grow by the id
    of their node, `lags` how far groups are behind.
    """

    status: AppStatus | None
    running: bool
    now: float
    views: Mapping[str, Mapping[str, Any]]
    rates: Mapping[str, float | None]
    lags: Mapping[str, GroupLag]

    def query(self, name: str) -> QueryStatus | None:
        return None if self.status is None else self.status.queries.get(name)

    def state(self, name: str) -> str | None:
        """What the query does; one of a driver that is gone has stopped, whatever it said last."""
        query = self.query(name)
        if query is None:
            return None
        return query.state if self.running or query.state in _ENDED else STOPPED


def graph_state(app: AppDescription, moving: Moving) -> dict[str, Any]:
    """Nodes and edges; a figure that makes no sense for a node, or is not known, is null."""
    groups = {each.topic: each.group for each in app.streams}
    queries = {each.name: each.query for each in app.views}
    nodes = [
        {**asdict(node), **_EMPTY, **dict(_figures(node, app, groups, queries, moving))} for node in app.nodes
    ]
    return {"nodes": nodes, "edges": [{"from": each.tail, "to": each.head} for each in app.edges]}


_EMPTY: dict[str, Any] = dict.fromkeys(
    ("state", "records_per_s", "watermark", "delay_s", "lag_records", "batch_seconds", "error")
)


def _figures(
    node: Node,
    app: AppDescription,
    groups: Mapping[str, str],
    queries: Mapping[str, str],
    moving: Moving,
) -> Iterator[tuple[str, Any]]:
    match node.kind:
        case "topic":
            yield "records_per_s", moving.rates.get(node.id)
        case "query":
            yield from _of_query(node.name, groups.get(node.name), moving)
        case "step" | "window":
            query = queries.get(node.name, "")
            yield "state", moving.state(query)
            yield "watermark", _watermark(moving.query(query))
        case "view":
            view = moving.views.get(node.name, {})
            yield "state", moving.state(queries.get(node.name, ""))
            yield "records_per_s", moving.rates.get(node.id)
            yield "watermark", view.get("watermark")
            yield "delay_s", view.get("freshness_s")
            yield "lag_records", view.get("lag_records")
            yield "error", view.get("problem")
        case "hook":
            yield from _of_group(moving.lags.get(f"{app.app}.hooks.{node.name}"))


def _of_query(name: str, group: str | None, moving: Moving) -> Iterator[tuple[str, Any]]:
    query = moving.query(name)
    yield "state", moving.state(name)
    if query is not None:
        yield "records_per_s", records_per_s(query, moving.now) if moving.running else 0.0
        yield "watermark", _watermark(query)
        yield "batch_seconds", query.batch_seconds
        yield "error", query.error
    if group is not None:
        yield from _of_group(moving.lags.get(group))


def _of_group(lag: GroupLag | None) -> Iterator[tuple[str, Any]]:
    if lag is not None:
        yield "delay_s", lag.lag_seconds
        yield "lag_records", lag.lag_records


def _watermark(query: QueryStatus | None) -> str | None:
    return None if query is None or query.watermark_us is None else format_time(query.watermark_us // 1000)


def queries_state(moving: Moving) -> list[dict[str, Any]]:
    """Every query with its counts, as the driver noted them last."""
    if moving.status is None:
        return []
    return [
        {
            "name": name,
            "state": moving.state(name),
            "batch_id": query.batch_id,
            "records": query.records,
            "batch_records": query.batch_records,
            "batch_seconds": query.batch_seconds,
            "records_per_s": records_per_s(query, moving.now) if moving.running else 0.0,
            "watermark": _watermark(query),
            "restarts": query.restarts,
            "error": query.error,
            "positions": dict(query.positions),
            "updated_at": query.updated_at,
        }
        for name, query in moving.status.queries.items()
    ]


def rebuild_state(moving: Moving) -> dict[str, Any] | None:
    """The last rebuild and how far it is; None if there was none since the driver started."""
    if moving.status is None or moving.status.rebuild is None:
        return None
    return {**asdict(moving.status.rebuild), "progress": rebuild_progress(moving.status)}
