"""How the planner cut a dataflow into stages, and why, in words; no I/O."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.app.plan.dataflow import PlannedGraph
from headrace.streams.dataflow import are_shuffled
from headrace.streams.operators import (
    AsOfJoin,
    FirstRow,
    Group,
    LatestJoin,
    Operator,
    Settled,
    StreamJoin,
    TableJoin,
    Upserts,
    WindowNode,
)

__all__ = ["OperatorLine", "StageLine", "kind_of", "stages_of"]


@dataclass(frozen=True, slots=True)
class OperatorLine:
    """An operator: its kind, its inputs by name, and the columns by which rows meet, if any do."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    keys: tuple[tuple[str, ...] | None, ...]
    why: str

    @property
    def words(self) -> str:
        pairs = zip(self.inputs, self.keys, strict=True)
        read = [name if not key else f"{name} by {', '.join(key)}" for name, key in pairs]
        return f"{self.name}  ← {'; '.join(read)}"

    def to_json(self) -> dict[str, Any]:
        inputs = [
            {"input": name, "by": list(key or ())} for name, key in zip(self.inputs, self.keys, strict=True)
        ]
        return {"operator": self.name, "kind": self.kind, "inputs": inputs, "why": self.why}


@dataclass(frozen=True, slots=True)
class StageLine:
    """Operators that are equally far from the topics, and why there is a shuffle before them, or none."""

    number: int
    operators: tuple[OperatorLine, ...]
    why: str
    is_shuffled: bool = True

    def to_json(self) -> dict[str, Any]:
        operators = [each.to_json() for each in self.operators]
        return {
            "stage": self.number,
            "operators": operators,
            "why": self.why,
            "is_shuffled": self.is_shuffled,
        }


def kind_of(operator: Operator) -> str:
    """What an operator is, in one word."""
    if isinstance(operator, TableJoin | StreamJoin | AsOfJoin | LatestJoin):
        return "join"
    if isinstance(operator, Upserts):
        return "table"
    if isinstance(operator, Group):
        return "group"
    return "window" if isinstance(operator, WindowNode) else "step"


def stages_of(planned: PlannedGraph) -> tuple[StageLine, ...]:
    """The stages of a dataflow, in order."""
    graph = planned.graph
    return tuple(
        StageLine(
            number,
            tuple(_operator(planned, place) for place in places),
            "; ".join([_why(planned, number, is_shuffled=is_shuffled), *_warnings(planned, number)]),
            is_shuffled,
        )
        for number, (places, is_shuffled) in enumerate(zip(graph.stages, are_shuffled(graph), strict=True))
    )


def _operator(planned: PlannedGraph, place: int) -> OperatorLine:
    node = planned.graph.nodes[place]
    inputs = tuple(_name(planned, edge.producer) for edge in node.edges)
    keys = (("record",),) if isinstance(node.operator, Settled) else node.operator.inputs
    return OperatorLine(node.name, kind_of(node.operator), inputs, keys, _why_there(planned, place))


def _name(planned: PlannedGraph, producer: int) -> str:
    graph = planned.graph
    count = len(graph.sources)
    return graph.sources[producer].spec.topic if producer < count else graph.nodes[producer - count].name


def _why(planned: PlannedGraph, stage: int, *, is_shuffled: bool) -> str:
    """Why there is a shuffle before a stage, where its rows meet others of their key, or why none is."""
    if stage == 0:
        return "rows of the topics meet by key, behind one shuffle"
    graph = planned.graph
    edges = [
        (edge, key)
        for place in graph.stages[stage]
        for edge, key in zip(graph.nodes[place].edges, graph.nodes[place].operator.inputs, strict=True)
        if edge.producer >= len(graph.sources)
    ]
    made = ", ".join(sorted({_name(planned, edge.producer) for edge, _ in edges}))
    if is_shuffled:
        return f"split: reads what {made} makes, by a key of its own, behind another shuffle"
    keys = sorted({", ".join(key) for _, key in edges if key})
    together = f": it is by {' and by '.join(keys)} already" if keys else ", in any order"
    return f"no shuffle: reads what {made} makes where it is{together}"


def _warnings(planned: PlannedGraph, stage: int) -> Iterator[str]:
    """What the author of a view should know of its key."""
    for place in planned.graph.stages[stage]:
        operator = planned.graph.nodes[place].operator
        if isinstance(operator, FirstRow):
            yield (
                f"nothing says that {', '.join(operator.keys)} tells rows apart: of several rows with one "
                "key only the first is shown"
            )


def _why_there(planned: PlannedGraph, place: int) -> str:
    """Why an operator is in its stage: alone, or fused with others behind the same shuffle."""
    graph = planned.graph
    others = [graph.nodes[each].name for each in graph.stages[graph.stage_of[place]] if each != place]
    if not others:
        return "alone in its stage"
    return f"fused with {', '.join(others)}: equally far from the topics, so one shuffle serves all"
