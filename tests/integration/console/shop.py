"""A small shop without Spark: a topic, and a view of it that the test writes as a query would."""

import itertools
import threading
from pathlib import Path

import pyarrow as pa

from headrace.app.status.description import (
    AppDescription,
    StoreDescription,
    ViewDescription,
    write_description,
)
from headrace.views import ChangeKind, ViewBatch, ViewSchema, open_store
from headrace.views.rebuilt import compare_versions

COLUMNS = pa.schema(
    [
        ("region", pa.string()),
        ("minute", pa.timestamp("us", "UTC")),
        ("orders", pa.int64()),
        ("revenue", pa.decimal128(12, 2)),
        ("score", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)
KEY = ("region", "minute")
_numbers = itertools.count()

CHANGES = pa.schema([("before", pa.struct(COLUMNS)), ("after", pa.struct(COLUMNS)), ("kind", pa.int32())])


def compared(shown, rebuilt):
    """Two versions of the view's rows; the rebuilt one has read one record more."""
    schema = ViewSchema("revenue", KEY, COLUMNS)
    tables = [pa.Table.from_pylist(rows, COLUMNS) for rows in (shown, rebuilt)]
    return compare_versions((schema, tables[0], {"orders": {0: 4}}), (schema, tables[1], {"orders": {0: 5}}))


class Shop:
    """One view, `revenue`, of the topic `orders`, in an SQLite file of its own; it numbers its batches.

    A second one in the same folder takes its place there, as a new run of an application does.
    """

    def __init__(
        self, data: Path, bootstrap: str, *, topic: str = "orders", keep_changes: int = 10_000
    ) -> None:
        self.data = data
        self.topic = topic
        self.url = f"sqlite:///{data / f'views-{next(_numbers)}.db'}"
        self.schema = ViewSchema("revenue", KEY, COLUMNS, keep_changes=keep_changes)
        self.store = open_store(self.url)
        self._lock = threading.Lock()
        self.begin("first")
        write_description(data, self._description(bootstrap))

    def begin(self, query: str) -> None:
        """A new query owns the view; its first batch replaces all rows."""
        self.query, self.batch = query, 0
        self.store.prepare(self.schema)
        self.store.begin(self.schema.name, query)

    def apply(self, rows, *, offsets=None, kind=ChangeKind.UPDATE, counters=None, watermark_us=None) -> None:
        """A batch that puts these rows in place."""
        changes = pa.table(
            {
                "before": pa.nulls(len(rows), CHANGES.field("before").type),
                "after": pa.array(rows, CHANGES.field("after").type),
                "kind": pa.array([int(kind)] * len(rows), pa.int32()),
            },
            schema=CHANGES,
        )
        with self._lock:
            self.store.apply(
                self.schema.name,
                ViewBatch(
                    self.query,
                    self.batch,
                    changes if rows else None,
                    {self.topic: offsets} if offsets else {},
                    watermark_us,
                    counters or {},
                ),
            )
            self.batch += 1

    def _description(self, bootstrap: str) -> AppDescription:
        view = ViewDescription(
            name="revenue",
            doc="Revenue by region.",
            kind="tumbling",
            window="1 minute",
            key=KEY,
            columns={each.name: str(each.type) for each in COLUMNS},
            query=self.topic,
            stream=self.topic,
            topic=None,
            store=StoreDescription(url=self.url),
        )
        return AppDescription(
            app="shop",
            file=None,
            bootstrap=bootstrap,
            streams=(),
            views=(view,),
            dead_topic="shop.dead",
            late_topic="shop.late",
            hooks=(),
            nodes=(),
            edges=(),
        )
