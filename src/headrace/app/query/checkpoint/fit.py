"""Whether an application fits a checkpoint: its description, held against the one in the manifest. No I/O.

A description is made of plain values: those by which operators and steps describe themselves, each
operator with the version of its stored state, and what of streams and views shapes the state. It
has a version of its own. One of the version before is held against the application as that version
described it; the next start rewrites it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.app.plan.dataflow import PlannedGraph
from headrace.app.plan.planner import PlannedStream, PlannedView
from headrace.streams import StreamSpec, rows_schema
from headrace.streams.engine import describe_step, step_in_words
from headrace.streams.operators import Group, Operator, WindowNode, WindowOperator

__all__ = [
    "describe_graph",
    "describe_query",
    "graph_reasons",
    "query_reasons",
    "reasons_to_rebuild",
]

# 1 had windows, aggregates and steps as the text that Python and Spark make of them.
_VERSION = 2
# What of a stream decides how a record is read, or whether it is late.
_STREAM_FIELDS = ("decoder", "event_time", "sent_at", "lateness_us", "max_ahead_us")
# The same; manifests of older versions do not have them, and mean these.
_LATER_FIELDS = {"time_unit": "ms", "lenient": False}
_TABLE_FIELDS = ("table", "table_key")
# Of a dataflow's description the parts that are nearest to what its author wrote; and how much is told.
_TELLING = ("sources", "nodes", "key")
_MOST_LETTERS = 200


def describe_query(planned: PlannedStream) -> dict[str, Any]:
    """Everything about a query that shapes its state, in plain values."""
    views = {each.view.name: _describe_view(each) for each in planned.views}
    return {"version": _VERSION, **_describe_stream(planned.stream.spec), "views": views}


def describe_graph(planned: PlannedGraph) -> dict[str, Any]:
    """Everything about a dataflow that shapes its state, in plain values."""
    return {
        "version": _VERSION,
        "sources": _describe_sources(planned),
        "nodes": [each.operator.describe() for each in planned.graph.nodes],
        "edges": [
            {**edge, "steps": [describe_step(step) for step in planned.steps.get(number, ())]}
            for number, edge in enumerate(_describe_edges(planned))
        ],
        "key": list(planned.schema.key),
    }


def query_reasons(kept: Mapping[str, Any], planned: PlannedStream) -> list[str]:
    """Why a checkpoint with this description cannot be gone on from, in words; empty if it can."""
    version = kept.get("version", 1)
    if version > _VERSION:
        return [_newer(version)]
    return reasons_to_rebuild(kept, describe_query(planned) if version == _VERSION else _query_1(planned))


def graph_reasons(kept: Mapping[str, Any], planned: PlannedGraph) -> list[str]:
    """The same for a dataflow, of which the first reason is given."""
    version = kept.get("version", 1)
    if version > _VERSION:
        return [_newer(version)]
    now = describe_graph(planned) if version == _VERSION else _graph_1(planned)
    return [] if kept == now else [_first_difference(kept, now)]


def reasons_to_rebuild(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What changed that the state cannot follow, in words; empty if the checkpoint fits."""
    return [*_stream_reasons(before, now), *_view_reasons(before["views"], now["views"])]


def _newer(version: int) -> str:
    return f"it was described by a newer version (description {version}, known is {_VERSION})"


def _stream_reasons(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    was, is_ = _LATER_FIELDS | dict(before["stream"]), _LATER_FIELDS | dict(now["stream"])
    for name in (*_STREAM_FIELDS, *_LATER_FIELDS):
        if was[name] != is_[name]:
            yield f"the stream's {name} was {was[name]!r} and is {is_[name]!r}"
    for name in before["fields"]:
        kinds = before["fields"][name], now["fields"].get(name)
        if kinds[1] is not None and kinds[0] != kinds[1]:
            yield f"column {name!r} was {kinds[0]} and is {kinds[1]}"


def _view_reasons(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(before.keys() - now.keys()):
        yield f"view {name!r} is gone"
    for name in sorted(now.keys() - before.keys()):
        yield f"view {name!r} is new"
    for name in sorted(now.keys() & before.keys()):
        for part in dict.fromkeys((*now[name], *before[name])):
            was, is_ = before[name].get(part), now[name].get(part)
            if was != is_:
                yield f"view {name!r}: {part} was {was!r} and is {is_!r}"


def _first_difference(before: Any, now: Any, where: str = "") -> str:
    """The first place at which two descriptions differ, and what is there in each."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in [*_TELLING, *sorted(before.keys() | now.keys())]:
            if before.get(name) != now.get(name):
                return _first_difference(before.get(name), now.get(name), f"{where}.{name}".strip("."))
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, (one, other) in enumerate(zip(before, now, strict=True)):
            if one != other:
                return _first_difference(one, other, f"{where}[{number}]")
    return f"{where} was {_in_short(before)} and is {_in_short(now)}"


def _in_short(described: Any) -> str:
    """A part of a description for a message: operators by their names, and nothing at length."""
    if isinstance(described, list) and all(isinstance(each, Mapping) for each in described):
        names = [str(each.get("operator", "")) for each in described]
        if any(names):
            return f"({', '.join(names)})"
    if described is None:
        return "absent"
    text = repr(described)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"


# --- what streams, views and edges are ----------------------------------------------------------


def _describe_stream(spec: StreamSpec) -> dict[str, Any]:
    return {
        "stream": {name: getattr(spec, name) for name in (*_STREAM_FIELDS, *_LATER_FIELDS)},
        "fields": {str(field.name): str(field.type) for field in rows_schema(spec)},
    }


def _describe_view(planned: PlannedView) -> dict[str, Any]:
    operator = planned.plan.stateful
    return {
        "steps": [describe_step(step) for step in planned.steps],
        **_describe_schema(planned),
        **({} if operator is None else operator.describe()),
    }


def _describe_schema(planned: PlannedView) -> dict[str, Any]:
    columns = {field.name: str(field.type) for field in planned.schema.columns}
    return {"columns": columns, "key": list(planned.schema.key)}


def _describe_sources(planned: PlannedGraph) -> dict[str, Any]:
    names = (*_STREAM_FIELDS, *_LATER_FIELDS, *_TABLE_FIELDS)
    return {
        each.spec.topic: {
            **{name: _plain(getattr(each.spec, name)) for name in names},
            **({"transactions": each.spec.transactions} if each.spec.transactions else {}),
            "fields": {field.name: str(field.type) for field in rows_schema(each.spec)},
        }
        for each in planned.graph.sources
    }


def _describe_edges(planned: PlannedGraph) -> list[dict[str, Any]]:
    return [
        {"from": each.producer, "columns": {field.name: str(field.type) for field in each.schema}}
        for each in planned.graph.edges
    ]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


# --- version 1 ----------------------------------------------------------------------------------


def _query_1(planned: PlannedStream) -> dict[str, Any]:
    views = {each.view.name: _view_1(each) for each in planned.views}
    return {**_describe_stream(planned.stream.spec), "views": views}


def _view_1(planned: PlannedView) -> dict[str, Any]:
    operator, latest = planned.plan.operator, planned.plan.latest
    described = {"steps": [step_in_words(step) for step in planned.steps], **_describe_schema(planned)}
    if latest is not None:
        described["last"] = latest.by
    if operator is not None:
        described |= _windows_1(operator)
    return described


def _graph_1(planned: PlannedGraph) -> dict[str, Any]:
    return {
        "sources": _describe_sources(planned),
        "nodes": [_node_1(each.operator) for each in planned.graph.nodes],
        "edges": [
            {**edge, "steps": [step_in_words(step) for step in planned.steps.get(number, ())]}
            for number, edge in enumerate(_describe_edges(planned))
        ],
        "key": list(planned.schema.key),
    }


def _node_1(operator: Operator) -> dict[str, Any]:
    if isinstance(operator, WindowNode):
        return operator.describe() | _windows_1(operator.operator)
    if isinstance(operator, Group):
        return operator.describe() | {"aggregates": {name: repr(each) for name, each in operator.aggregates}}
    return operator.describe()


def _windows_1(operator: WindowOperator) -> dict[str, Any]:
    return {
        "window": repr(operator.window),
        "by": list(operator.keys),
        "aggregates": {name: repr(each) for name, each in operator.aggregates},
        "emit": operator.emit,
        "correct_for_us": operator.correct_for_us,
    }
