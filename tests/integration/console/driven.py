"""What a driver leaves behind for the console, left by a test without Spark."""

import uuid
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa

from headrace.app.status.description import (
    AppDescription,
    PipelineEdge,
    PipelineNode,
    StoreDescription,
    StreamDescription,
    ViewDescription,
    write_description,
)
from headrace.views import ChangeKind, ViewBatch, ViewSchema, open_store

MINUTE_US = 60_000_000
TIMES = pa.timestamp("us", "UTC")
COLUMNS = pa.schema([("place", pa.string()), ("window_start", TIMES), ("window_end", TIMES)])

VIEW = ViewDescription(
    name="counts",
    doc="",
    kind="tumbling",
    window="tumbling 1 minute",
    key=("place", "window_start", "window_end"),
    columns={each.name: str(each.type) for each in COLUMNS},
    query="events",
    stream="events",
    topic=None,
    store=None,
)


class Application:
    """What a driver leaves behind for the console, left by a test."""

    def __init__(self, data, bootstrap, make_topic, send) -> None:
        self.data, self.bootstrap = data, bootstrap
        self.topic, self.name = make_topic(_new("events")), _new("app")
        self.late, self.send = make_topic(f"{self.name}.late"), send
        url = f"sqlite:///{data}/views.db"
        self.store = open_store(url)
        self.schema = ViewSchema("counts", VIEW.key, COLUMNS, keep_changes=1_000)
        self.store.prepare(self.schema)
        self.store.begin("counts", "first")
        self.batches = 0
        nodes = [("topic", self.topic), ("query", self.topic), ("window", "counts"), ("view", "counts")]
        ids = [f"{kind}:{name}" for kind, name in nodes]
        store = StoreDescription(url=url)
        write_description(
            data,
            AppDescription(
                app=self.name,
                file="app.py",
                bootstrap=bootstrap,
                streams=(
                    StreamDescription(
                        topic=self.topic,
                        schema="place string",
                        decoder="json",
                        event_time=None,
                        lateness_us=0,
                        late="drop",
                        correct_for_us=0,
                        group=f"{self.name}.{self.topic}",
                        words="",
                    ),
                ),
                views=(replace(VIEW, query=self.topic, stream=self.topic, store=store),),
                dead_topic=f"{self.name}.dead",
                late_topic=self.late,
                hooks=(),
                nodes=tuple(
                    PipelineNode(id=each, kind=kind, name=name, label=name)
                    for each, (kind, name) in zip(ids, nodes, strict=True)
                ),
                edges=tuple(PipelineEdge(tail=one, head=two) for one, two in pairwise(ids)),
            ),
        )

    def apply(self, minutes, kind=ChangeKind.CLOSE, **counters) -> None:
        """A batch that publishes the windows of these minutes."""
        rows = [
            {"place": "here", "window_start": MINUTE_US * each, "window_end": MINUTE_US * (each + 1)}
            for each in minutes
        ]
        after = pa.array(rows, pa.struct(list(self.schema.columns)))
        kinds = pa.array([int(kind)] * len(rows), pa.int8())
        table = pa.table({"kind": kinds, "before": pa.nulls(len(rows), after.type), "after": after})
        batch = ViewBatch("first", self.batches, table, {self.topic: {0: 3}}, MINUTE_US, counters)
        self.store.apply("counts", batch)
        self.batches += 1

    def drop(self, offset, minute, late_by_s) -> None:
        about = {
            "reason": "late",
            "view": "counts",
            "topic": self.topic,
            "partition": 0,
            "offset": offset,
            "window_start_us": MINUTE_US * minute,
            "window_end_us": MINUTE_US * (minute + 1),
            "late_by_us": 1_000_000 * late_by_s,
        }
        headers = [(f"headrace.late.{name}", str(value).encode()) for name, value in about.items()]
        self.send(self.late, [b"{}"], headers=headers)


def _new(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"
