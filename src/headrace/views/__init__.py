"""Stores of views: where the results of streams are kept and read.

A view is a table that changes with its input. A query brings the changes of each
micro-batch as a `ViewBatch`; a `ViewStore` applies it once, whole, together with the
ledger that says which batch and which offsets the view reflects. `open_store` makes
the store that a URL names. What reads a view says so with `Condition` and `Order`,
plain data that becomes SQL or Arrow here, never the other way round. A `RecordSink`
writes records to topics, each batch once.

Knows nothing of Spark. May import `client` and below; drivers of databases are
imported by the store that needs them.
"""

from headrace.views.batch import Kind, ViewBatch
from headrace.views.ledger import Reflected
from headrace.views.numbered import OutputRecord
from headrace.views.opening import open_store
from headrace.views.record_sink import RecordSink, records_of
from headrace.views.schema import ViewSchema
from headrace.views.selecting import Condition, Order
from headrace.views.store import Change, Snapshot, ViewStore
from headrace.views.topics import TopicSettings

__all__ = [
    "Change",
    "Condition",
    "Kind",
    "Order",
    "OutputRecord",
    "RecordSink",
    "Reflected",
    "Snapshot",
    "TopicSettings",
    "ViewBatch",
    "ViewSchema",
    "ViewStore",
    "open_store",
    "records_of",
]
