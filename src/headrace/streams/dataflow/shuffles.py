"""Which shuffles of a graph can be spared: where the rows of a stage are is where the next one wants them.

Rows are in the bucket of the key by which they were brought together, and stay there until a shuffle
takes them away. What comes out of an operator is therefore in the bucket of those of its columns that
have the values of that key (`Operator.placed_by`), and a consumer that brings rows together by the very
same columns, in the same order, finds them there. Nothing else changes: stages, their numbers and
their state are the same with a shuffle and without.
"""

from collections.abc import Iterator, Mapping

from headrace.streams.dataflow.graph import Edge, Graph, stepped_edges

__all__ = ["Pass", "are_shuffled", "passes", "placements", "stays"]

Key = tuple[str, ...]
Pass = tuple[tuple[int, ...], bool]


def placements(graph: Graph) -> list[frozenset[Key]]:
    """For every producer the keys, as columns of what it puts out, in whose buckets its rows are."""
    found: list[frozenset[Key]] = [frozenset()] * len(graph.sources)
    for node in graph.nodes:
        keys = set(node.operator.placed_by)
        if all(key is None for key in node.operator.inputs):  # rows are taken wherever they are
            keys |= frozenset.intersection(*(_behind(edge, found[edge.producer]) for edge in node.edges))
        columns = set(node.schema.names)
        found.append(frozenset(key for key in keys if columns.issuperset(key)))
    return found


def stays(graph: Graph, number: int) -> bool:
    """Whether the rows of an edge are in the buckets in which their consumer wants them."""
    edge, key = graph.edges[number], graph.keys_of(number)
    if edge.producer < len(graph.sources):
        return False
    return key is None or tuple(key) in _behind(edge, placements(graph)[edge.producer])


def are_shuffled(graph: Graph) -> list[bool]:
    """For every stage whether there is a shuffle before it: rows of the stage before it go elsewhere."""
    leaves = {
        graph.stage_of[edge.producer - len(graph.sources)]
        for number, edge in enumerate(graph.edges)
        if edge.producer >= len(graph.sources) and not stays(graph, number)
    }
    return [stage == 0 or stage - 1 in leaves for stage in range(len(graph.stages))]


def passes(graph: Graph) -> Iterator[Pass]:
    """The stages that a task computes in one go, bucket after bucket; and whether a shuffle comes first.

    Spark projects rows only between two of these.
    """
    begun: list[int] = []
    is_shuffled = are_shuffled(graph)
    for stage, places in enumerate(graph.stages):
        begun.append(stage)
        has_steps = stepped_edges(graph, [len(graph.sources) + place for place in places])
        if stage + 1 == len(graph.stages) or is_shuffled[stage + 1] or has_steps:
            yield tuple(begun), is_shuffled[begun[0]]
            begun = []


def _behind(edge: Edge, keys: frozenset[Key]) -> frozenset[Key]:
    """The keys by the names that their columns have behind the edge's steps."""
    new: Mapping[str, str] = {old: name for name, old in reversed(edge.kept)}
    if not edge.has_steps:
        return keys
    return frozenset(tuple(new[name] for name in key) for key in keys if new.keys() >= set(key))
