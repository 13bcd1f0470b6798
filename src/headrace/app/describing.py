"""The description of a planned application: plan in, `AppDescription` out; no I/O."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from headrace.app.description import (
    AppDescription,
    Edge,
    Node,
    StoreDescription,
    StreamDescription,
    ViewDescription,
)
from headrace.app.drawing import Graph, Line, describe_window, graph_of
from headrace.app.frames import frame_query
from headrace.app.planning import AppPlan, PlannedFrame, PlannedStream, PlannedView
from headrace.app.records import dead_topic, late_topic
from headrace.app.store_urls import from_anywhere, password_variable, without_password
from headrace.streams.operators import Hopping, Session, Sliding, Window

__all__ = ["describe_app"]


def describe_app(
    plan: AppPlan, stores: Mapping[str, str], *, bootstrap: str, file: str | None, folder: Path
) -> AppDescription:
    """Everything that may be known of the plan; `stores` are the URLs by view, relative to `folder`."""
    described = {view: _store(from_anywhere(url, folder)) for view, url in stores.items()}
    graph = graph_of(plan)
    drawn = list(_parts(plan, graph))
    declared = list(plan.app.views)
    return AppDescription(
        app=plan.app.name,
        file=file,
        bootstrap=bootstrap,
        streams=tuple(_stream(each, graph.streams[each.name]) for each in plan.streams),
        views=tuple(sorted(_views(plan, described), key=lambda each: declared.index(each.name))),
        dead_topic=dead_topic(plan.app.name),
        late_topic=late_topic(plan.app.name),
        hooks=tuple(each.to_json() for each in plan.app.hooks.values()),
        nodes=tuple(dict.fromkeys(each for each in drawn if isinstance(each, Node))),
        edges=tuple(dict.fromkeys(each for each in drawn if isinstance(each, Edge))),
    )


def _store(url: str) -> StoreDescription:
    shown, password = without_password(url)
    return StoreDescription(
        url=shown, password_variable=None if password is None else password_variable(shown)
    )


def _stream(planned: PlannedStream, words: str) -> StreamDescription:
    spec, correct_for_us = planned.stream.spec, planned.stream.correct_for_us
    return StreamDescription(
        topic=spec.topic,
        schema=spec.schema,
        decoder=spec.decoder,
        event_time=spec.event_time,
        lateness_us=spec.lateness_us,
        late="correct" if correct_for_us else "drop",
        correct_for_us=correct_for_us,
        group=spec.group,
        words=words,
    )


def _views(plan: AppPlan, stores: Mapping[str, StoreDescription]) -> Iterator[ViewDescription]:
    for planned in plan.streams:
        for view in planned.views:
            yield _view(view, planned.name, stores.get(view.view.name))
    for frame in plan.frames:
        yield _view(frame, None, stores.get(frame.view.name))


def _view(
    planned: PlannedView | PlannedFrame, stream: str | None, store: StoreDescription | None
) -> ViewDescription:
    view, operator = planned.view, planned.plan.operator if isinstance(planned, PlannedView) else None
    columns = {field.name: str(field.type) for field in planned.schema.columns}
    if store is None and isinstance(planned, PlannedView):  # records of their own: no row's place in the log
        columns = {name: columns[name] for name in planned.plan.columns}
    return ViewDescription(
        name=view.name,
        doc=view.doc,
        kind="frame" if stream is None else "rows" if operator is None else _kind(operator.window),
        window=None if operator is None else describe_window(operator.window),
        key=planned.schema.key if store is not None else view.key,
        columns=columns,
        query=frame_query(view.name) if stream is None else stream,
        stream=stream,
        topic=view.topic,
        store=store,
    )


def _kind(window: Window) -> str:
    if isinstance(window, Session):
        return "session"
    if isinstance(window, Hopping):
        return "hopping"
    return "sliding" if isinstance(window, Sliding) else "tumbling"


# --- the graph ----------------------------------------------------------------------------------


def _parts(plan: AppPlan, graph: Graph) -> Iterator[Node | Edge]:
    """Nodes and edges as a reader meets them: topic, query, steps, view, and what falls aside."""
    lines = {line.view: line for line in graph.lines}
    app = plan.app.name
    for planned in plan.streams:
        topic, query = _topic(planned.name), _query(planned.name, graph.streams[planned.name])
        yield from (topic, query, Edge(tail=topic.id, head=query.id))
        for view in planned.views:
            yield from _way(query, view, lines[view.view.name])
        has_windows = any(view.plan.operator is not None for view in planned.views)
        asides = [dead_topic(app), *([late_topic(app)] if has_windows else [])]
        for aside in map(_topic, asides):
            yield from (aside, Edge(tail=query.id, head=aside.id))
    for frame in plan.frames:
        query = _query(frame_query(frame.view.name), "computed by Spark alone")
        shown = _node("view", frame.view.name)
        yield from (query, shown, Edge(tail=query.id, head=shown.id))
    for hook in graph.hooks:
        followed = _topic(hook.topic)
        told = Node(id=f"hook:{hook.hook}", kind="hook", name=hook.hook, label=hook.words)
        yield from (followed, told, Edge(tail=followed.id, head=told.id))


def _way(query: Node, planned: PlannedView, line: Line) -> Iterator[Node | Edge]:
    """From a query to one of its views: every step, and the topic behind it where it is one."""
    name, topic = planned.view.name, planned.view.topic
    is_windowed = planned.plan.operator is not None
    way = [query]
    for number, words in enumerate(line.steps):
        # The window and its aggregates are the last two.
        kind = "window" if is_windowed and number >= len(line.steps) - 2 else "step"
        way.append(Node(id=f"{kind}:{name}:{number}", kind=kind, name=name, label=words))
    if topic is None or is_windowed:
        way.append(_node("view", name))
    if topic is not None:
        way.append(_topic(topic))
    for tail, head in pairwise(way):
        yield from (head, Edge(tail=tail.id, head=head.id))


def _topic(name: str) -> Node:
    return _node("topic", name)


def _query(name: str, words: str) -> Node:
    return Node(id=f"query:{name}", kind="query", name=name, label=words)


def _node(kind: str, name: str) -> Node:
    return Node(id=f"{kind}:{name}", kind=kind, name=name, label=name)
