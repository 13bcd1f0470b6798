"""Groups without windows: aggregates over all rows of a key, distinct rows, and the first rows of each key.

Rows come and go, so counts go down as well as up. Arrow and numpy only: no Spark, no I/O.
"""

from headrace.streams.operators.groups.distinct import Distinct
from headrace.streams.operators.groups.first import FirstRow
from headrace.streams.operators.groups.group import Group
from headrace.streams.operators.groups.last import LastRow
from headrace.streams.operators.groups.top import Top

__all__ = ["Distinct", "FirstRow", "Group", "LastRow", "Top"]
