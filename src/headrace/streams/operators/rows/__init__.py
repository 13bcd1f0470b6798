"""Operators on rows one by one: union and explode hold nothing, dedup remembers keys for a time.

Arrow and numpy only: no Spark, no I/O.
"""

from headrace.streams.operators.rows.dedup import Dedup
from headrace.streams.operators.rows.explode import Explode
from headrace.streams.operators.rows.union import Union

__all__ = ["Dedup", "Explode", "Union"]
