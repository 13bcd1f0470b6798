"""Windowed aggregation, column by column: pure functions of Arrow tables.

No Spark, no I/O, no clock: rows and a watermark come in, changes of results go out.
`WindowOperator.partial` reduces rows where they are read, `OperatorState.advance` merges
partials and publishes; `batch.recompute` is the definition of the result. Results are
the same to the last bit whatever the batching, the interleaving of partitions or the
order of arrival. May import `errors` only.
"""

from headrace.streams.operators.aggregates import Aggregate, agg
from headrace.streams.operators.batch import in_order, recompute
from headrace.streams.operators.custom import ArrowAggregate
from headrace.streams.operators.durations import Duration, microseconds
from headrace.streams.operators.grouping import Groups
from headrace.streams.operators.operator import DROPPED, LATE, PUNCTUAL, WindowOperator
from headrace.streams.operators.packing import buckets, pack_buckets, unpack
from headrace.streams.operators.state import Advance, OperatorState
from headrace.streams.operators.windows import (
    Hopping,
    Session,
    Sliding,
    Tumbling,
    Window,
    deadlines,
    hopping,
    session,
    sliding,
    tumbling,
)

__all__ = [
    "DROPPED",
    "LATE",
    "PUNCTUAL",
    "Advance",
    "Aggregate",
    "ArrowAggregate",
    "Duration",
    "Groups",
    "Hopping",
    "OperatorState",
    "Session",
    "Sliding",
    "Tumbling",
    "Window",
    "WindowOperator",
    "agg",
    "buckets",
    "deadlines",
    "hopping",
    "in_order",
    "microseconds",
    "pack_buckets",
    "recompute",
    "session",
    "sliding",
    "tumbling",
    "unpack",
]
