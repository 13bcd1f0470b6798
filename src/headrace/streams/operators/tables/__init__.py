"""Tables from logs: the newest row of each key, kept through upserts, deletes and key changes.

Arrow and numpy only: no Spark, no I/O.
"""

from headrace.streams.operators.tables.history import SPANS, TableHistory
from headrace.streams.operators.tables.upserts import Upserts
from headrace.streams.operators.tables.whole_rows import WholeRows

__all__ = ["SPANS", "TableHistory", "Upserts", "WholeRows"]
