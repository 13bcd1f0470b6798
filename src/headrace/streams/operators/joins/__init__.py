"""Joins, of tables and of streams: changes of two inputs in, changes of the join out.

Each keeps its inputs in runs ordered by the hash of the key and finds partners by bisection,
so that a step costs in proportion to what arrived and what it matches, not to what is held.
Pure functions of Arrow tables, as all operators are.
"""

from headrace.streams.operators.joins.as_of_join import AsOfJoin, AsOfJoinState
from headrace.streams.operators.joins.latest_join import LatestJoin
from headrace.streams.operators.joins.stream_join import StreamJoin, StreamJoinState
from headrace.streams.operators.joins.table_join import TableJoin, TableJoinState

__all__ = [
    "AsOfJoin",
    "AsOfJoinState",
    "LatestJoin",
    "StreamJoin",
    "StreamJoinState",
    "TableJoin",
    "TableJoinState",
]
