"""The description of a planned application: plan in, `AppDescription` out; no I/O."""

from collections.abc import Iterator, Mapping, Sized
from itertools import pairwise
from pathlib import Path

from headrace.app.plan.dataflow import PlannedGraph
from headrace.app.plan.graph import AppGraph, ViewLine, describe_window, graph_of
from headrace.app.plan.names import dead_topic, frame_query, late_topic
from headrace.app.plan.planner import AppPlan, PlannedFrame, PlannedStream, PlannedView
from headrace.app.plan.stages import stages_of
from headrace.app.plan.topology import row_topics
from headrace.app.status.description import (
    AppDescription,
    OperatorDescription,
    PipelineEdge,
    PipelineNode,
    QueryDescription,
    StateDescription,
    StoreDescription,
    StreamDescription,
    ViewDescription,
    describe_store,
)
from headrace.streams.operators import Hopping, Session, Sliding, Window

__all__ = ["describe_app"]


def describe_app(
    plan: AppPlan, stores: Mapping[str, str], *, bootstrap: str, file: str | None, folder: Path
) -> AppDescription:
    """Everything that may be known of the plan; `stores` are the URLs by view, relative to `folder`."""
    described = {view: describe_store(url, folder) for view, url in stores.items()}
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
        nodes=tuple(dict.fromkeys(each for each in drawn if isinstance(each, PipelineNode))),
        edges=tuple(dict.fromkeys(each for each in drawn if isinstance(each, PipelineEdge))),
        states=tuple(_states(plan, graph)),
        entities=tuple(each.describe() for each in plan.app.entity_types.values()),
        queries=tuple(_queries(plan)),
    )


# --- queries ------------------------------------------------------------------------------------


def _queries(plan: AppPlan) -> Iterator[QueryDescription]:
    """Who reads what and writes what; folders as `RunOptions.query_folder` and its like have them."""
    asides = (dead_topic(plan.app.name), late_topic(plan.app.name))
    for planned in plan.streams:
        yield QueryDescription(
            name=planned.name,
            folder=f"queries/{planned.name}",
            reads={planned.name: planned.stream.spec.group},
            rows=tuple(row_topics(planned)),
            asides=asides if planned.name not in asides else (),
        )
    for frame in plan.frames:
        yield QueryDescription(
            name=frame_query(frame.view.name),
            folder=f"frames/{frame.view.name}",
            reads=dict.fromkeys(sorted(frame.topics), ""),
            asides=asides[:1],
        )
    for flow in plan.graphs:
        yield QueryDescription(
            name=flow.name,
            folder=f"dataflows/{flow.view.name}",
            reads={each.spec.topic: each.spec.group for each in flow.graph.sources},
            asides=asides,
        )


# --- state --------------------------------------------------------------------------------------


def _states(plan: AppPlan, graph: AppGraph) -> Iterator[StateDescription]:
    """Where each query keeps its state, as `RunOptions.query_folder` and `graph_folder` have it."""
    lines = {line.view: line for line in graph.lines}
    for planned in plan.streams:
        operators = [
            OperatorDescription(name=name, node=_state_node(view, lines[name]), inputs=(planned.name,))
            for view in planned.views
            if view.plan.stateful is not None
            for name in [view.view.name]
        ]
        if operators:
            folder = f"queries/{planned.name}/checkpoint/buckets"
            yield StateDescription(query=planned.name, folder=folder, operators=tuple(operators))
    for flow in plan.graphs:
        for stage, places in enumerate(flow.graph.stages):
            clock = OperatorDescription(name="clock", node="", inputs=())
            nodes = [_graph_operator(flow, place) for place in places]
            yield StateDescription(
                query=flow.name,
                folder=f"dataflows/{flow.view.name}/checkpoint/stages/{stage}",
                operators=(clock, *nodes),
            )


def _state_node(planned: PlannedView, line: ViewLine) -> str:
    name = planned.view.name
    return f"view:{name}" if planned.plan.operator is None else f"window:{name}:{len(line.steps) - 1}"


def _graph_operator(planned: PlannedGraph, place: int) -> OperatorDescription:
    graph = planned.graph
    node = graph.nodes[place]
    sources = len(graph.sources)
    inputs = [
        graph.sources[edge.producer].spec.topic
        if edge.producer < sources
        else graph.nodes[edge.producer - sources].name
        for edge in node.edges
    ]
    return OperatorDescription(name=node.name, node=f"step:{planned.view.name}:{place}", inputs=tuple(inputs))


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
    for flow in plan.graphs:
        yield _view(flow, None, stores.get(flow.view.name))


def _view(
    planned: PlannedView | PlannedFrame | PlannedGraph, stream: str | None, store: StoreDescription | None
) -> ViewDescription:
    view, operator = planned.view, planned.plan.operator if isinstance(planned, PlannedView) else None
    columns = {field.name: str(field.type) for field in planned.schema.columns}
    if store is None and isinstance(planned, PlannedView):  # records of their own: no row's place in the log
        columns = {name: columns[name] for name in planned.plan.columns}
    return ViewDescription(
        name=view.name,
        doc=view.doc,
        kind=_kind_of(planned, stream),
        window=None if operator is None else describe_window(operator.window),
        key=planned.schema.key if store is not None else view.key,
        columns=columns,
        query=_query_of(planned, stream),
        stream=stream,
        topic=view.topic,
        store=store,
        history_us=view.history_us,
    )


def _kind_of(planned: PlannedView | PlannedFrame | PlannedGraph, stream: str | None) -> str:
    if isinstance(planned, PlannedGraph):
        return "dataflow"
    operator = planned.plan.operator if isinstance(planned, PlannedView) else None
    return "frame" if stream is None else "rows" if operator is None else _kind(operator.window)


def _query_of(planned: PlannedView | PlannedFrame | PlannedGraph, stream: str | None) -> str:
    if isinstance(planned, PlannedGraph):
        return planned.name
    return frame_query(planned.view.name) if stream is None else stream


def _kind(window: Window) -> str:
    if isinstance(window, Session):
        return "session"
    if isinstance(window, Hopping):
        return "hopping"
    return "sliding" if isinstance(window, Sliding) else "tumbling"


# --- the graph ----------------------------------------------------------------------------------


def _parts(plan: AppPlan, graph: AppGraph) -> Iterator[PipelineNode | PipelineEdge]:
    """Nodes and edges as a reader meets them: topic, query, steps, view, and what falls aside."""
    lines = {line.view: line for line in graph.lines}
    app = plan.app.name
    for planned in plan.streams:
        topic, query = _topic(planned.name), _query(planned.name, graph.streams[planned.name])
        yield from (topic, query, PipelineEdge(tail=topic.id, head=query.id))
        for view in planned.views:
            yield from _way(query, view, lines[view.view.name])
        has_windows = any(view.plan.operator is not None for view in planned.views)
        asides = [dead_topic(app), *([late_topic(app)] if has_windows else [])]
        for aside in map(_topic, asides):
            yield from (aside, PipelineEdge(tail=query.id, head=aside.id))
    for frame in plan.frames:
        query = _query(frame_query(frame.view.name), "computed by Spark alone")
        shown = _node("view", frame.view.name)
        yield from (query, shown, PipelineEdge(tail=query.id, head=shown.id))
    for flow in plan.graphs:
        yield from _dataflow(flow, app)
    for hook in graph.hooks:
        followed = _topic(hook.topic)
        node = PipelineNode(id=f"hook:{hook.hook}", kind="hook", name=hook.hook, label=hook.words)
        yield from (followed, node, PipelineEdge(tail=followed.id, head=node.id))


def _dataflow(planned: PlannedGraph, app: str) -> Iterator[PipelineNode | PipelineEdge]:
    """From the topics of a dataflow, operator by operator, to its view."""
    graph, view = planned.graph, planned.view.name
    producers = [_topic(each.spec.topic) for each in graph.sources]
    stages = stages_of(planned)
    operators = {
        place: (stage, operator)
        for stage, places in zip(stages, graph.stages, strict=True)
        for place, operator in zip(places, stage.operators, strict=True)
    }
    for place, (stage, operator) in sorted(operators.items()):
        producers.append(
            PipelineNode(
                id=f"step:{view}:{place}",
                kind=operator.kind,
                name=view,
                label=operator.name,
                stage=stage.number,
                why=f"stage {stage.number}: {stage.why}; {operator.why}",
            )
        )
    over = f"{_counted(graph.stages, 'stage')} over {_counted(graph.sources, 'topic')}"
    query = _query(planned.name, over)
    yield from (*producers, query)
    for place, node in enumerate(graph.nodes):
        for edge in node.edges:
            head = producers[len(graph.sources) + place]
            yield PipelineEdge(tail=producers[edge.producer].id, head=head.id)
    shown = _node("view", view)
    yield PipelineEdge(tail=producers[graph.views[0].edge.producer].id, head=query.id)
    yield from (shown, PipelineEdge(tail=query.id, head=shown.id))
    for aside in map(_topic, (dead_topic(app), late_topic(app))):
        yield from (aside, PipelineEdge(tail=query.id, head=aside.id))


def _counted(things: Sized, noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def _way(query: PipelineNode, planned: PlannedView, line: ViewLine) -> Iterator[PipelineNode | PipelineEdge]:
    """From a query to one of its views: every step, and the topic behind it where it is one."""
    name, topic = planned.view.name, planned.view.topic
    is_windowed = planned.plan.operator is not None
    way = [query]
    for number, words in enumerate(line.steps):
        # The window and its aggregates are the last two.
        kind = "window" if is_windowed and number >= len(line.steps) - 2 else "step"
        way.append(PipelineNode(id=f"{kind}:{name}:{number}", kind=kind, name=name, label=words))
    if topic is None or is_windowed:
        way.append(_node("view", name))
    if topic is not None:
        way.append(_topic(topic))
    for tail, head in pairwise(way):
        yield from (head, PipelineEdge(tail=tail.id, head=head.id))


def _topic(name: str) -> PipelineNode:
    return _node("topic", name)


def _query(name: str, words: str) -> PipelineNode:
    return PipelineNode(id=f"query:{name}", kind="query", name=name, label=words)


def _node(kind: str, name: str) -> PipelineNode:
    return PipelineNode(id=f"{kind}:{name}", kind=kind, name=name, label=name)
