"""The application as the API shows it, asked of its files, its stores and the log."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from headrace.app.status import (
    AppDescription,
    OperatorState,
    PipelineNode,
    ViewDescription,
    is_running,
    read_state,
    read_status,
)
from headrace.console.ask.groups import group_lags
from headrace.console.ask.lag_history import GroupLag
from headrace.console.ask.pipeline.state import (
    AppSnapshot,
    CounterRates,
    graph_state,
    queries_state,
    rebuild_state,
)
from headrace.console.ask.records import PageLimits, bounds, read_last, records_to_json
from headrace.console.ask.view_state import not_built, view_statuses
from headrace.console.context import ConsoleContext
from headrace.console.problems import ProblemError
from headrace.console.push import Watch
from headrace.errors import HeadraceError, RequestError
from headrace.views import Order, rows_to_json

__all__ = ["pipeline_watch", "sample_of_node"]

_WATCH_S = 1.0
_STATE_MS = 3_000
_SAMPLE_BYTES = 1 << 20


class PipelineWatch(Watch[dict[str, Any]]):
    """The state of the application; remembers what it saw, to tell rates."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        self._rates = CounterRates()
        self._states: tuple[int, dict[str, OperatorState]] = (-_STATE_MS, {})
        super().__init__(self.look, _WATCH_S)

    async def look(self) -> dict[str, Any]:
        """The application as it is now; without one, only that there is none."""
        app = await self._context.workers.run(self._context.application.description)
        if app is None:
            return _NOTHING
        try:
            lags = await group_lags(self._context)
        except HeadraceError:
            lags = {}  # the log is away: all else is told
        return await self._context.workers.run(self._state, app, lags)

    def _states_of(self, app: AppDescription) -> dict[str, OperatorState]:
        """What operators keep, by node; looked at now and then, for that takes a file for each bucket."""
        now_ms = self._context.clock.now_ms()
        if now_ms - self._states[0] >= _STATE_MS:
            assert self._context.application.path is not None
            found = read_state(self._context.application.path, app)
            self._states = now_ms, {each.node: each for each in found}
        return self._states[1]

    def _state(self, app: AppDescription, lags: Mapping[str, GroupLag]) -> dict[str, Any]:
        context = self._context
        assert context.application.path is not None
        views = {each["name"]: each for each in view_statuses(context)}
        self._rates.add(context.clock.now_ms(), {**_topic_ends(context, app), **_sequences(views)})
        found = AppSnapshot(
            status=read_status(context.application.path),
            running=is_running(context.application.path),
            now=context.clock.now_ms() / 1000,
            views=views,
            rates={node.id: self._rates.of(node.id) for node in app.nodes},
            lags=lags,
            states=self._states_of(app),
        )
        status = found.status
        return {
            "application": {
                "name": app.app,
                "file": app.file,
                "streams": [asdict(each) for each in app.streams],
                "hooks": [{"name": each["name"], "topic": each["topic"]} for each in app.hooks],
            },
            "running": found.running,
            "pid": status.pid if status is not None and found.running else None,
            "started_at": None if status is None else status.started_at,
            **graph_state(app, found),
            "cluster": None if status is None or status.cluster is None else asdict(status.cluster),
            "queries": queries_state(found),
            "rebuild": rebuild_state(found),
            "messages": [] if status is None else [asdict(each) for each in status.messages],
            "alerts": list(status.alerts) if status is not None and found.running else [],
        }


_NOTHING: dict[str, Any] = {
    "application": None,
    "running": False,
    "pid": None,
    "started_at": None,
    "nodes": [],
    "edges": [],
    "cluster": None,
    "queries": [],
    "rebuild": None,
    "messages": [],
    "alerts": [],
}


def _topic_ends(context: ConsoleContext, app: AppDescription) -> dict[str, int]:
    """How far the graph's topics go, by node; nothing while the log is away."""
    names = {node.name: node.id for node in app.nodes if node.kind == "topic"}
    try:
        log = context.clients.log()
        topics = log.cluster().topics
        wanted = [(name, index) for name in names if name in topics for index in topics[name].partitions]
        ends = log.ends(wanted)
    except HeadraceError:
        return {}
    found = {names[name]: 0 for name, _ in wanted}
    for (name, _), end in ends.items():
        found[names[name]] += end
    return found


def _sequences(views: dict[str, dict[str, Any]]) -> dict[str, int]:
    return {f"view:{name}": each["sequence"] for name, each in views.items() if each["sequence"] is not None}


def pipeline_watch(context: ConsoleContext) -> PipelineWatch:
    """The one of this console."""
    found = context.watches.of(("pipelines",), lambda: PipelineWatch(context))
    assert isinstance(found, PipelineWatch)
    return found


# --- samples; these block ------------------------------------------------------------------------


def sample_of_node(context: ConsoleContext, node_id: str, limit: int) -> dict[str, Any]:
    """The newest rows or records of a node; raises ProblemError where there are none to see."""
    app = context.application.description()
    node = None if app is None else next((each for each in app.nodes if each.id == node_id), None)
    if app is None or node is None:
        raise ProblemError(404, f"there is no node {node_id[:100]!r}", "GET /v1/pipelines lists the nodes")
    topic, view = _source(app, node)
    if view is not None:
        return {"node": node.id, "of": f"view:{view.name}", "rows": _rows(context, view, limit)}
    if topic is not None:
        return {"node": node.id, "of": f"topic:{topic}", "rows": _records(context, topic, limit)}
    raise ProblemError(404, f"{node_id} has no rows to show", "choose a topic or a view")


def _source(app: AppDescription, node: PipelineNode) -> tuple[str | None, ViewDescription | None]:
    """Whose rows stand for a node: the topic's of a stream's query; else those of the view it leads to."""
    if node.kind == "topic" or any(each.topic == node.name for each in app.streams if node.kind == "query"):
        return node.name, None
    if node.kind == "hook":
        topics = [each.tail for each in app.edges if each.head == node.id]
        return (topics[0].removeprefix("topic:"), None) if topics else (None, None)
    named = "query" if node.kind == "query" else "name"
    view = next((each for each in app.views if getattr(each, named) == node.name), None)
    return (view.topic, None) if view is not None and view.store is None else (None, view)


def _rows(context: ConsoleContext, view: ViewDescription, limit: int) -> list[dict[str, Any]]:
    newest = [Order(name, descending=True) for name in ("window_end",) if name in view.columns]
    with context.application.store_of(view) as store:
        try:
            return rows_to_json(store.read(view.name, order=newest, limit=limit))
        except RequestError:
            raise not_built(view.name) from None


def _records(context: ConsoleContext, topic: str, limit: int) -> list[dict[str, Any]]:
    limits = PageLimits(records=limit, bytes=_SAMPLE_BYTES, scan_bytes=_SAMPLE_BYTES)
    with context.clients.fetcher() as fetcher:
        page = read_last(fetcher, topic, bounds(fetcher, topic), limit, limits)
    return records_to_json(reversed(page.records))
