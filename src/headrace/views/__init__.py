"""View stores: where the results of streams are kept and read.

A view is a table that changes with its input. A query brings the changes of each
micro-batch as a `ViewBatch`; a `ViewStore` applies it atomically and exactly once, together
with the ledger that says which batch and which offsets the view reflects. `open_store` opens
the store that a URL names. Readers say which rows they want with `Condition` and `Order`,
plain data that becomes SQL or Arrow here, never the other way round.

Knows nothing of Spark. May import `client` and below; drivers of databases are imported by
the store that needs them.
"""

from headrace.change_kind import ChangeKind
from headrace.views.as_of import AsOf, history_view, parse_as_of, read_as_of
from headrace.views.batch import StagedChanges, ViewBatch, net_changes, rows_as_changes
from headrace.views.changes import ViewChange
from headrace.views.conditions import parse_condition, parse_order
from headrace.views.formats import csv_line, dumps, from_json, rows_to_csv, rows_to_json, to_json
from headrace.views.ledger import Reflected
from headrace.views.misfits import LimitedStore, without_misfits
from headrace.views.open import open_store, require_store_url, topic_of_view, written_epoch
from headrace.views.schema import ViewSchema
from headrace.views.selection import Condition, Order, Selection, select
from headrace.views.store import Snapshot, Stager, StagingStore, ViewStore

__all__ = [
    "AsOf",
    "ChangeKind",
    "Condition",
    "LimitedStore",
    "Order",
    "Reflected",
    "Selection",
    "Snapshot",
    "StagedChanges",
    "Stager",
    "StagingStore",
    "ViewBatch",
    "ViewChange",
    "ViewSchema",
    "ViewStore",
    "csv_line",
    "dumps",
    "from_json",
    "history_view",
    "net_changes",
    "open_store",
    "parse_as_of",
    "parse_condition",
    "parse_order",
    "read_as_of",
    "require_store_url",
    "rows_as_changes",
    "rows_to_csv",
    "rows_to_json",
    "select",
    "to_json",
    "topic_of_view",
    "without_misfits",
    "written_epoch",
]
