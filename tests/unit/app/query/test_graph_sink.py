"""What a view over several topics sends to the application's own topics."""

import pyarrow as pa
import pytest

from headrace import App
from headrace.app.plan.dataflow import PlannedGraph
from headrace.app.query.sinks.graph_sink import GraphSink
from headrace.client.write import RecordTooLarge
from headrace.streams import StreamSpec
from headrace.streams.dataflow import Edge, Graph, TopicSource, ViewOutput
from headrace.streams.dataflow.step import raw
from headrace.streams.engine import BlobKind, Message
from headrace.streams.engine.messages import encode_table
from headrace.streams.feed.stamping import DEAD_SCHEMA
from headrace.views import ViewSchema, open_store

COLUMNS = pa.schema([("id", pa.string())])


class Topics:
    """Takes records up to a size."""

    def __init__(self, most_bytes=1 << 30):
        self.most_bytes = most_bytes
        self.records = []

    def write(self, batch_id, records):
        found = list(records)
        for each in found:
            if len(each.value) > self.most_bytes:
                raise RecordTooLarge("too large", topic=each.topic, takes=self.most_bytes + 2_000)
        self.records += found
        return True


def sink_of(topic, records, side_offsets=None):
    app = App("shop")
    stream = app.stream(topic, schema="id string")
    app.view(name="ids", key="id")(lambda: stream)
    source = TopicSource(spec=StreamSpec(topic=topic, schema="id string"), schema=COLUMNS)
    edge = Edge(producer=0, schema=COLUMNS)
    graph = Graph(sources=(source,), nodes=(), views=(ViewOutput(name="ids", edge=edge),))
    schema = ViewSchema("ids", ("id",), COLUMNS)
    planned = PlannedGraph(
        view=app.views["ids"], graph=graph, steps={}, schema=schema, inputs=(), is_stream=True
    )
    store = open_store(f"memory://{topic}-{id(records)}-{side_offsets}")
    store.prepare(schema)
    store.begin("ids", "q")
    return GraphSink(
        planned=planned, app_name="shop", query_id="q", stores={"ids": store}, records=records,
        commit_progress=lambda *_: None, side_offsets=side_offsets or {},
    )  # fmt: skip


def dead(value):
    row = dict.fromkeys(DEAD_SCHEMA.names) | {
        "partition": 0,
        "offset": 3,
        "timestamp": 0,
        "reason": "not JSON",
    }
    table = pa.Table.from_pylist([row | {"value": value}], DEAD_SCHEMA)
    return Message(0, raw(0), BlobKind.DEAD, encode_table(table))


def test_what_a_topic_does_not_take_is_shortened_and_stops_nothing():
    topics = Topics(most_bytes=20_000)
    sink_of("orders", topics)([dead(b"x" * 1_000_000)], 0)
    (letter,) = topics.records
    assert dict(letter.headers)["headrace.dead.truncated"] and len(letter.value) < 20_000


@pytest.mark.parametrize("topic", ["shop.dead", "shop.late"])
def test_letters_that_cannot_be_read_are_not_written_down_again(topic):
    topics = Topics()
    sink_of(topic, topics)([dead(b"{")], 0)
    assert topics.records == []


def test_letters_that_an_earlier_query_wrote_are_not_written_again():
    topics = Topics()
    sink_of("orders", topics, {"orders/0": 4, "others/0": 9})([dead(b"{")], 0)  # at offset 3
    assert topics.records == []
    sink_of("orders", topics, {"orders/0": 3, "orders/1": 9})([dead(b"{")], 0)
    assert len(topics.records) == 1
