"""How the planner cut a dataflow into stages, and why, in words; no I/O."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.app.plan.dataflow import PlannedGraph
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
    """What is computed between two shuffles, and why it is not one with the stage before."""

    number: int
    operators: tuple[OperatorLine, ...]
    why: str

    def to_json(self) -> dict[str, Any]:
        operators = [each.to_json() for each in self.operators]
        return {"stage": self.number, "operators": operators, "why": self.why}


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
    return tuple(
        StageLine(number, tuple(_operator(planned, place) for place in places), _why(planned, number))
        for number, places in enumerate(planned.graph.stages)
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


def _why(planned: PlannedGraph, stage: int) -> str:
    """Why a stage begins: its rows meet others of their key there."""
    if stage == 0:
        return "rows of the topics meet by key, behind one shuffle"
    graph = planned.graph
    made = {
        graph.nodes[edge.producer - len(graph.sources)].name
        for place in graph.stages[stage]
        for edge in graph.nodes[place].edges
        if edge.producer >= len(graph.sources)
    }
    split = f"split: reads what {', '.join(sorted(made))} makes, by a key of its own, behind another shuffle"
    return "; ".join([split, *_warnings(planned, stage)])


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
