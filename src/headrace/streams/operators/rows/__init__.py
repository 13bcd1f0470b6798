"""Operators on rows one by one: union and explode hold nothing, dedup remembers keys for a time.

`Settled` holds rows that may still be taken back until they are final.

Arrow and numpy only: no Spark, no I/O.
"""

from headrace.streams.operators.rows.dedup import Dedup
from headrace.streams.operators.rows.explode import Explode
from headrace.streams.operators.rows.settled import Settled
from headrace.streams.operators.rows.stream_versions import StreamVersions
from headrace.streams.operators.rows.union import Union

__all__ = ["Dedup", "Explode", "Settled", "StreamVersions", "Union"]
