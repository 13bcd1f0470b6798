"""Windows, joins, tables, groups and the last row of each key: pure functions of Arrow tables.

No Spark, no I/O, no clock: rows and a watermark come in, changes of results go out.
`WindowOperator.partial` reduces rows where they are read, `OpenWindows.advance` merges
partials and publishes; `recompute` is the definition of the result. Results are
the same to the last bit whatever the batching, the interleaving of partitions or the
order of arrival. May import `errors` and `event_time` only.
"""

from headrace.streams.operators.aggregates.aggregates import Aggregate, agg
from headrace.streams.operators.aggregates.custom import ArrowAggregate
from headrace.streams.operators.grouping import Groups
from headrace.streams.operators.groups import Distinct, FirstRow, Group, LastRow, Top
from headrace.streams.operators.hashing import normal_key
from headrace.streams.operators.joins import AsOfJoin, LatestJoin, StreamJoin, TableJoin
from headrace.streams.operators.latest import LatestOperator, LatestState
from headrace.streams.operators.latest_definition import recompute_latest
from headrace.streams.operators.operator import STAMPS, WEIGHT, Operator, OperatorStep, State
from headrace.streams.operators.packing import buckets, pack_buckets, unpack
from headrace.streams.operators.rescaling import part_of_snapshot
from headrace.streams.operators.rows import Dedup, Explode, Settled, StreamVersions, Union
from headrace.streams.operators.runs import Held
from headrace.streams.operators.tables import TableHistory, Upserts, WholeRows
from headrace.streams.operators.windows.definition import in_order, recompute
from headrace.streams.operators.windows.durations import Duration, microseconds
from headrace.streams.operators.windows.node import WindowNode
from headrace.streams.operators.windows.operator import DROPPED, LATE, PUNCTUAL, WindowOperator
from headrace.streams.operators.windows.state import Advance, OpenWindows
from headrace.streams.operators.windows.windows import (
    Hopping,
    Session,
    Sliding,
    Tumbling,
    Window,
    hopping,
    session,
    sliding,
    tumbling,
)

__all__ = [
    "DROPPED",
    "LATE",
    "PUNCTUAL",
    "STAMPS",
    "WEIGHT",
    "Advance",
    "Aggregate",
    "ArrowAggregate",
    "AsOfJoin",
    "Dedup",
    "Distinct",
    "Duration",
    "Explode",
    "FirstRow",
    "Group",
    "Groups",
    "Held",
    "Hopping",
    "LastRow",
    "LatestJoin",
    "LatestOperator",
    "LatestState",
    "OpenWindows",
    "Operator",
    "OperatorStep",
    "Session",
    "Settled",
    "Sliding",
    "State",
    "StreamJoin",
    "StreamVersions",
    "TableHistory",
    "TableJoin",
    "Top",
    "Tumbling",
    "Union",
    "Upserts",
    "WholeRows",
    "Window",
    "WindowNode",
    "WindowOperator",
    "agg",
    "buckets",
    "hopping",
    "in_order",
    "microseconds",
    "normal_key",
    "pack_buckets",
    "part_of_snapshot",
    "recompute",
    "recompute_latest",
    "session",
    "sliding",
    "tumbling",
    "unpack",
]
