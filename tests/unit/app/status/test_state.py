"""What an application's state takes, read beside whoever writes it; and that what expired leaves the disk."""

import pyarrow as pa

from headrace.app.status.description import AppDescription, OperatorDescription, StateDescription
from headrace.app.status.state import HeldInput, OperatorState, read_state
from headrace.cli.show.applications import render_state, state_data
from headrace.streams.dataflow import Edge, Graph, Node, StageBatch, TopicSource, ViewOutput
from headrace.streams.dataflow.stage import advance_graph_bucket
from headrace.streams.engine import BlobKind, Message
from headrace.streams.engine.messages import encode_json, encode_table
from headrace.streams.engine.state.files import BucketFiles
from headrace.streams.event_time import NO_WATERMARK, Mark, PartitionTime
from headrace.streams.operators import WEIGHT, StreamJoin, WindowOperator, agg, session, tumbling
from headrace.streams.operators.operator import stamp_fields
from headrace.streams.spec import StreamSpec

SECOND = 1_000_000
ROWS = pa.schema([("k", pa.int64()), ("text", pa.string())])
CLICKS = pa.schema([("k", pa.int64()), ("link", pa.string())])
JOIN = StreamJoin(left_on=("k",), right_on=("k",), before_us=0, after_us=60 * SECOND)


def graph():
    sources = tuple(
        TopicSource(spec=StreamSpec(topic=name, schema="k long"), schema=schema)
        for name, schema in (("searches", ROWS), ("clicks", CLICKS))
    )
    edges = tuple(Edge(producer=number, schema=each.schema) for number, each in enumerate(sources))
    node = Node(name="join", operator=JOIN, edges=edges)
    view = ViewOutput(name="v", edge=Edge(producer=2, schema=node.schema))
    return Graph(sources=sources, nodes=(node,), views=(view,), buckets=1)


def mark(topic, time_us):
    return Mark(
        topic=topic,
        run="r",
        partition=0,
        next=1,
        time=PartitionTime(time_us),
        times={0: PartitionTime(time_us)},
        lateness_us=0,
        idle_after_us=SECOND,
    )


class Bucket:
    """One bucket of a join, batch after batch."""

    def __init__(self, folder):
        self._graph = graph()
        self._log = BucketFiles(folder, 0, "q")
        self._number = 0

    def take(self, searches, now_us):
        """Searches at this time, and a watermark there for both topics."""
        batch = StageBatch(self._graph, 0)
        columns = {"k": list(range(searches)), "text": [f"{each:050}" for each in range(searches)]}
        stamps = {
            "_partition": [0] * searches,
            "_offset": list(range(searches)),
            "_event_time": [now_us] * searches,
            "_watermark": [None] * searches,
            WEIGHT: [1] * searches,
        }
        if searches:
            rows = pa.table({**columns, **stamps}, schema=pa.schema([*ROWS, *stamp_fields()]))
            batch.add(Message(0, 0, BlobKind.ROWS, encode_table(rows)))
        for topic in ("searches", "clicks"):
            batch.add(Message(0, -1, BlobKind.MARK, encode_json(mark(topic, now_us).to_json())))
        advance_graph_bucket(batch, "run", 0, self._log, self._number)
        self._number += 1


def described():
    operators = (
        OperatorDescription(name="clock", node="", inputs=()),
        OperatorDescription(name="join", node="step:v:0", inputs=("searches", "clicks")),
    )
    state = StateDescription(query="view v", folder="stages/0", operators=operators)
    return AppDescription(
        app="shop",
        file=None,
        bootstrap="",
        streams=(),
        views=(),
        dead_topic="",
        late_topic="",
        hooks=(),
        nodes=(),
        edges=(),
        states=(state,),
    )


def on_disk(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_rows_bytes_and_the_oldest_entry_are_told_by_input_and_bucket(tmp_path):
    assert read_state(tmp_path, described())[0].rows == 0
    bucket = Bucket(tmp_path / "stages" / "0")
    bucket.take(3, 100 * SECOND)
    bucket.take(5, 130 * SECOND)
    (state,) = read_state(tmp_path, described())
    assert [(each.input, each.bucket, each.rows, each.oldest_us) for each in state.held] == [
        ("searches", 0, 8, 100 * SECOND),
        ("clicks", 0, 0, None),
    ]
    assert 0 < state.bytes[0] < on_disk(tmp_path)
    data = state_data(state)
    assert (data["rows"], data["oldest"], data["bytes"]) == (8, "1970-01-01T00:01:40.000Z", state.bytes[0])
    lines = render_state([state], by_bucket=False).splitlines()
    assert [line.split()[:4] for line in lines[2:]] == [
        ["view", "v", "join", "searches"],
        ["view", "v", "join", "clicks"],
    ]
    assert len(render_state([state], by_bucket=True).splitlines()) == 4
    assert AppDescription.from_json({**described().to_json()}).states == described().states


def held(*rows):
    inputs = [
        HeldInput(input="i", bucket=bucket, rows=each, oldest_us=None) for bucket, each in enumerate(rows)
    ]
    size = dict.fromkeys(range(len(rows)), 100)
    return OperatorState(query="q", operator="o", node="", bytes=size, held=tuple(inputs))


def test_skew_is_the_largest_bucket_against_the_median():
    assert held(10, 10, 30, 10).skew == 3
    assert held(0, 0, 8, 0).skew == 8  # one key has all rows
    assert held(5).skew is None and held(0, 0).skew is None
    assert state_data(held(1, 2, 2, 3))["skew"] == 1.5
    told = render_state([held(10, 10, 30, 10)], by_bucket=False).splitlines()
    assert told[0].split() == ["query", "operator", "input", "rows", "bytes", "skew", "oldest"]
    assert told[2].split() == ["q", "o", "i", "60", "400", "3.0"]


def test_expired_state_leaves_the_disk(tmp_path):
    bucket = Bucket(tmp_path / "stages" / "0")
    for batch in range(20):
        bucket.take(2_000, (100 + batch) * SECOND)
    (full,) = read_state(tmp_path, described())
    full_bytes = on_disk(tmp_path)
    assert full.rows == 40_000
    for batch in range(80):  # as heartbeats do, and long enough for two snapshots
        bucket.take(0, (1000 + batch) * SECOND)
    (empty,) = read_state(tmp_path, described())
    assert empty.rows == 0
    assert empty.bytes[0] < full.bytes[0] / 20
    assert on_disk(tmp_path) < full_bytes / 20


def test_windows_tell_their_rows_and_the_oldest():
    rows = pa.table(
        {
            "k": pa.array(["a", "b", "a"], pa.string()),
            "_partition": pa.array([0] * 3, pa.int32()),
            "_offset": pa.array(range(3), pa.int64()),
            "_event_time": pa.array([130 * SECOND, 70 * SECOND, 75 * SECOND], pa.int64()),
            "_watermark": pa.array([NO_WATERMARK] * 3, pa.int64()),
        }
    )
    for window, oldest_us in ((tumbling("1 minute"), 60 * SECOND), (session("10 seconds"), 70 * SECOND)):
        operator = WindowOperator(window=window, keys=("k",), aggregates=(("n", agg.count()),))
        state = operator.new_state()
        state.advance([operator.partial(rows, operator.classify(rows))], NO_WATERMARK)
        assert state.held() == ((3, oldest_us),)
