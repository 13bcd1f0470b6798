"""Which shuffles of a graph are spared: those that would leave every row where it is."""

from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.streams import StreamSpec
from headrace.streams.dataflow import Edge, Graph, Node, TopicSource, ViewOutput
from headrace.streams.dataflow.shuffles import are_shuffled, passes
from headrace.streams.dataflow.step import StageBatch
from headrace.streams.engine import BlobKind, Message
from headrace.streams.operators import Distinct, Explode, Group, TableJoin, Union, agg

COLUMNS = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("items", pa.list_(pa.string()))])


def graph(*nodes):
    """Nodes of (operator, producers) over two sources, and a view of the last."""
    sources = tuple(
        TopicSource(spec=StreamSpec(topic=topic, schema="a long"), schema=COLUMNS) for topic in ("one", "two")
    )
    schemas = [each.schema for each in sources]
    made = []
    for operator, producers in nodes:
        edges = tuple(Edge(producer=each, schema=schemas[each]) for each in producers)
        made.append(Node(name=type(operator).__name__, operator=operator, edges=edges))
        schemas.append(made[-1].schema)
    view = ViewOutput(name="view", edge=Edge(producer=len(schemas) - 1, schema=schemas[-1]))
    return Graph(sources=sources, nodes=tuple(made), views=(view,))


def by(*keys):
    return Group(keys=keys, aggregates=(("n", agg.count()),))


def join(how, left="a", right="b", **more):
    return TableJoin(left_on=(left,), right_on=(right,), how=how, **more)


def test_a_group_of_a_group_by_the_same_columns_is_where_it_was():
    assert are_shuffled(graph((by("a", "b"), [0]), (by("a", "b"), [2]))) == [True, False]


@pytest.mark.parametrize("keys", [("b", "a"), ("a",), ("b",), ()])
def test_rows_by_other_columns_or_in_another_order_are_shuffled(keys):
    assert are_shuffled(graph((by("a", "b"), [0]), (by(*keys), [2]))) == [True, True]


def test_one_group_of_everything_stays_in_its_bucket():
    assert are_shuffled(graph((by(), [0]), (by(), [2]))) == [True, False]


@pytest.mark.parametrize(
    ("how", "left", "right"),
    [
        ("inner", False, False),
        ("left", False, True),
        ("right", True, False),
        ("full", True, True),
    ],
)
def test_a_join_leaves_rows_by_the_key_of_each_side_that_all_of_them_have(how, left, right):
    names = {"right_names": tuple((name, f"other_{name}") for name in COLUMNS.names)}
    for key, is_shuffled in (("a", left), ("other_b", right)):
        found = graph((join(how, **names), [0, 1]), (by(key), [2]))
        assert are_shuffled(found) == [True, is_shuffled], key


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_a_column_that_both_sides_of_a_join_call_alike_has_the_key_of_either(how):
    names = {"right_names": (("b", "a"), ("a", "other"), ("items", "other_items"))}
    assert are_shuffled(graph((join(how, **names), [0, 1]), (by("a"), [2]))) == [True, False]


def test_operators_that_take_rows_where_they_are_need_no_shuffle_and_leave_rows_there():
    found = graph(
        (Distinct(("a", "b")), [0]), (Union(2), [2, 2]), (Distinct(("a", "b")), [3]), (by("a", "b"), [4])
    )
    assert are_shuffled(found) == [True, False, False, False]
    assert list(passes(found)) == [((0, 1, 2, 3), True)]


def test_rows_of_a_topic_that_are_taken_where_they_are_are_nowhere_in_particular():
    assert are_shuffled(graph((Explode("items", "item"), [0]), (by("a"), [2]))) == [True, True]


def test_a_union_is_in_no_bucket_unless_all_of_its_inputs_are():
    found = graph((by("a"), [0]), (by("b"), [1]), (Distinct(("a",)), [2]))
    assert are_shuffled(found) == [True, False]
    both = graph((Distinct(("a",)), [0]), (Distinct(("a",)), [1]), (Union(2), [2, 3]), (by("a"), [4]))
    assert are_shuffled(both) == [True, False, False]
    mixed = graph(
        (Distinct(("a",)), [0]), (Distinct(("a", "b")), [1]), (by("a"), [3]), (Distinct(("a",)), [2])
    )
    assert are_shuffled(mixed) == [True, True]


def test_a_shuffle_is_made_as_soon_as_one_edge_needs_it_even_one_that_passes_a_stage():
    """Rows for a bucket elsewhere must not travel through a stage that is computed without a shuffle."""
    found = graph(
        (Distinct(("a", "b")), [0]),
        (Distinct(("a", "b")), [2]),
        (TableJoin(left_on=("a", "b"), right_on=("b", "a"), how="semi"), [3, 2]),
    )
    assert are_shuffled(found) == [True, True, False]


def test_columns_that_steps_leave_as_they_are_keep_rows_where_they_are_and_end_a_pass():
    found = graph((by("a"), [0]), (by("a"), [2]))
    edge = found.nodes[1].edges[0]

    def behind(kept, key):
        schema = pa.schema([("renamed", pa.int64()), ("n", pa.int64())])
        stepped = replace(edge, schema=schema, has_steps=True, kept=kept)
        nodes = (found.nodes[0], replace(found.nodes[1], operator=by(key), edges=(stepped,)))
        return replace(found, nodes=nodes)

    assert list(passes(behind((("renamed", "a"),), "renamed"))) == [((0,), True), ((1,), False)]
    assert are_shuffled(behind((("n", "n"),), "renamed")) == [True, True]


def test_where_tasks_write_a_view_its_rows_do_not_pass_a_stage_out_of_their_bucket():
    found = replace(graph((by("a"), [0]), (by("a"), [2])), view_keys=("n",))
    assert are_shuffled(found) == [True, False]


def test_a_message_in_the_wrong_bucket_ends_the_task():
    found = graph((by("a"), [0]))
    with pytest.raises(RuntimeError, match="for bucket 3 came to bucket 1"):
        StageBatch.of(found, 0, 1, [Message(3, 0, BlobKind.COUNTERS, b"{}")])
    with pytest.raises(RuntimeError, match="no marks"):
        StageBatch.of(found, 0, 1, [Message(1, 0, BlobKind.COUNTERS, b"{}")])
