"""A shop as `headrace run` leaves it for others to look at: topics, views, description and status.

No Spark runs: the views are filled batch by batch through their store, which is how the
driver fills them, and the files are written by their own writers.
"""

import fcntl
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.app.status.description import (
    AppDescription,
    PipelineEdge,
    PipelineNode,
    StoreDescription,
    StreamDescription,
    ViewDescription,
    write_description,
)
from headrace.app.status.status import Rebuild, StatusFile
from headrace.views import ChangeKind, ViewBatch, ViewSchema, open_store

TIME = pa.timestamp("us", "UTC")
ORDERS, DEAD, LATE = "shop.orders", "shop.dead", "shop.late"

REVENUE = ViewSchema(
    "revenue_per_minute",
    ("window_start", "region"),
    pa.schema(
        [
            ("window_start", TIME),
            ("window_end", TIME),
            ("region", pa.string()),
            ("revenue", pa.float64()),
            ("orders", pa.int64()),
        ]
    ),
    keep_changes=1_000,
)
BEST = ViewSchema(
    "best_sellers",
    ("window_start", "product"),
    pa.schema([("window_start", TIME), ("window_end", TIME), ("product", pa.string()), ("sold", pa.int64())]),
    keep_changes=1_000,
)


class Shop:
    """The data folder of one application; `close` lets go of it."""

    def __init__(self, data: Path, bootstrap: str) -> None:
        self.data = data
        self.bootstrap = bootstrap
        self.url = f"sqlite:///{data / 'views.db'}"
        self.store = open_store(self.url)
        # Idempotent: tests rely on the order and the number of records, also when a batch is sent again.
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0, "enable.idempotence": True}
        )
        self._batches: dict[str, int] = {}
        data.mkdir(parents=True, exist_ok=True)
        self._lock = (data / "run.lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # as the driver does for as long as it runs
        make_topics(bootstrap, [ORDERS, "shop.clicks", DEAD, LATE])
        for schema in (REVENUE, BEST):
            self.store.prepare(schema)
            self.store.begin(schema.name, "q-1")
        write_description(data, description(self.url, bootstrap))
        self.status = StatusFile(data)
        self.status.query(
            ORDERS, state="running", batch_id=1, records=1_200, positions={"0": 0, "1": 0, "2": 0, "3": 0}
        )
        self.status.query("shop.clicks", state="running", batch_id=1)

    def close(self) -> None:
        self.status.close()
        self.store.close()
        self._lock.close()

    def rebuild(self, *, targets: Mapping[str, Mapping[str, int]], positions: Mapping[str, int]) -> None:
        """A rebuild that has come as far as `positions` of the orders."""
        begun = Rebuild(began_at=time.time(), targets=targets)
        self.status.note(lambda status, _: replace(status, rebuild=begun))
        self.status.query(ORDERS, state="rebuilding", positions=dict(positions))

    def rebuilt(self) -> None:
        """It is done."""
        self.status.note(lambda status, now: replace(status, rebuild=replace(status.rebuild, done_at=now)))
        self.status.query(ORDERS, state="running")

    def send(
        self, topic: str, value: Any, *, key: str | None = None, headers: Any = None, **more: Any
    ) -> None:
        """A record; JSON unless the value is bytes. `flush` makes it durable."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.producer.produce(topic, body, key=key, headers=headers, **more)
        self.producer.poll(0)

    def flush(self) -> None:
        assert self.producer.flush(120) == 0

    def apply(
        self,
        schema: ViewSchema,
        changes: Sequence[Mapping[str, Any]],
        *,
        offsets: Mapping[int, int] | None = None,
        watermark: datetime | None = None,
        counters: Mapping[str, int] | None = None,
    ) -> None:
        """One batch of a view, as the driver writes it."""
        number = self._batches.get(schema.name, 0)
        batch = ViewBatch(
            query_id="q-1",
            batch_id=number,
            changes=_table(schema, changes),
            offsets={ORDERS: dict(offsets or {})},
            watermark_us=None if watermark is None else round(watermark.timestamp() * 1e6),
            counters=dict(counters or {}),
        )
        assert self.store.apply(schema.name, batch)
        self._batches[schema.name] = number + 1


def make_topics(
    bootstrap: str, names: Sequence[str], partitions: int = 4, config: Mapping[str, str] | None = None
) -> None:
    """Topics that are there once this returns."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = [NewTopic(each, partitions, 1, config=dict(config or {})) for each in names]
    for first in range(0, len(wanted), 100):
        for made in admin.create_topics(wanted[first : first + 100], request_timeout=120).values():
            made.result(120)


def dead_letter(
    reason: str, *, topic: str = ORDERS, partition: int = 0, offset: int = 7
) -> list[tuple[str, bytes]]:
    """Headers of a dead letter, as the driver writes them."""
    about = {"reason": reason, "topic": topic, "partition": partition, "offset": offset, "query": "q-1"}
    about["timestamp_ms"] = round(time.time() * 1000)
    return [(f"headrace.dead.{name}", str(value).encode()) for name, value in about.items()]


def late_record(view: str, start: datetime, late_by_s: float, *, offset: int = 3) -> list[tuple[str, bytes]]:
    """Headers of a dropped record, as the driver writes them."""
    start_us = round(start.timestamp() * 1e6)
    about = {
        "reason": "late",
        "view": view,
        "topic": ORDERS,
        "partition": 0,
        "offset": offset,
        "event_time_us": start_us + 1_000_000,
        "window_start_us": start_us,
        "window_end_us": start_us + 60_000_000,
        "late_by_us": round(late_by_s * 1e6),
    }
    return [(f"headrace.late.{name}", str(value).encode()) for name, value in about.items()]


def minute(number: int) -> datetime:
    """The minute that many before this one."""
    return datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=number)


def revenue(window: datetime, region: str, amount: float, orders: int = 3) -> dict[str, Any]:
    """A row of the revenue view."""
    end = window + timedelta(minutes=1)
    return {"window_start": window, "window_end": end, "region": region, "revenue": amount, "orders": orders}


def sold(window: datetime, product: str, pieces: int) -> dict[str, Any]:
    """A row of the best sellers."""
    return {
        "window_start": window,
        "window_end": window + timedelta(minutes=10),
        "product": product,
        "sold": pieces,
    }


def closed(row: dict[str, Any]) -> dict[str, Any]:
    """The change that a window's close makes."""
    return {"before": None, "after": row, "kind": int(ChangeKind.CLOSE)}


def corrected(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The change that a straggler makes."""
    return {"before": before, "after": after, "kind": int(ChangeKind.CORRECTION)}


def _table(schema: ViewSchema, changes: Sequence[Mapping[str, Any]]) -> pa.Table | None:
    if not changes:
        return None
    struct = pa.struct(list(schema.columns))
    keys = [
        pa.array([(each["after"] or each["before"])[field.name] for each in changes], field.type)
        for field in schema.key_fields()
    ]
    parts = [pa.array([each[name] for each in changes], struct) for name in ("before", "after")]
    kinds = pa.array([each["kind"] for each in changes], pa.int8())
    return pa.table([*keys, *parts, kinds], names=[*schema.key, "before", "after", "kind"])


def description(url: str, bootstrap: str) -> AppDescription:
    """What `headrace run` would say of this application."""
    store = StoreDescription(url=url)
    nodes = [
        PipelineNode(id=f"topic:{ORDERS}", kind="topic", name=ORDERS, label=ORDERS),
        PipelineNode(
            id=f"query:{ORDERS}", kind="query", name=ORDERS, label="event time placed_at, lateness 20 seconds"
        ),
        *_way("revenue_per_minute", "tumbling 1 minute by region", "revenue, orders"),
        *_way("best_sellers", "hopping 10 minutes every 1 minute by product", "sold"),
        PipelineNode(id=f"topic:{DEAD}", kind="topic", name=DEAD, label=DEAD),
        PipelineNode(id=f"topic:{LATE}", kind="topic", name=LATE, label=LATE),
        PipelineNode(id="topic:shop.clicks", kind="topic", name="shop.clicks", label="shop.clicks"),
        PipelineNode(id="query:shop.clicks", kind="query", name="shop.clicks", label="event time clicked_at"),
    ]
    pairs = [(f"topic:{ORDERS}", f"query:{ORDERS}"), ("topic:shop.clicks", "query:shop.clicks")]
    for name in ("revenue_per_minute", "best_sellers"):
        pairs += [(f"query:{ORDERS}", f"window:{name}:0"), (f"window:{name}:0", f"window:{name}:1")]
        pairs += [(f"window:{name}:1", f"view:{name}")]
    pairs += [(f"query:{ORDERS}", f"topic:{DEAD}"), (f"query:{ORDERS}", f"topic:{LATE}")]
    return AppDescription(
        app="shop",
        file="shop.py",
        bootstrap=bootstrap,
        streams=(
            _stream(
                ORDERS,
                "order_id string, region string, quantity long, amount double, placed_at timestamp",
                "placed_at",
            ),
            _stream("shop.clicks", "visitor string, page string, clicked_at timestamp", "clicked_at"),
        ),
        views=(
            _view(
                REVENUE, "Revenue of each region, minute by minute.", "tumbling", "tumbling 1 minute", store
            ),
            _view(BEST, "Pieces sold in ten minutes.", "hopping", "hopping 10 minutes every 1 minute", store),
        ),
        dead_topic=DEAD,
        late_topic=LATE,
        hooks=(),
        nodes=tuple(nodes),
        edges=tuple(PipelineEdge(tail=tail, head=head) for tail, head in pairs),
    )


def _way(view: str, window: str, aggregates: str) -> list[PipelineNode]:
    return [
        PipelineNode(id=f"window:{view}:0", kind="window", name=view, label=window),
        PipelineNode(id=f"window:{view}:1", kind="window", name=view, label=aggregates),
        PipelineNode(id=f"view:{view}", kind="view", name=view, label=view),
    ]


def _stream(topic: str, schema: str, event_time: str) -> StreamDescription:
    return StreamDescription(
        topic=topic,
        schema=schema,
        decoder="json",
        event_time=event_time,
        lateness_us=20_000_000,
        late="correct",
        correct_for_us=3_600_000_000,
        group=f"headrace.shop.{topic}",
        words=f"event time {event_time}, lateness 20 seconds",
    )


def _view(schema: ViewSchema, doc: str, kind: str, window: str, store: StoreDescription) -> ViewDescription:
    return ViewDescription(
        name=schema.name,
        doc=doc,
        kind=kind,
        window=window,
        key=schema.key,
        columns={field.name: str(field.type) for field in schema.columns},
        query=ORDERS,
        stream=ORDERS,
        topic=None,
        store=store,
    )
