"""Reading a partition: from an offset or a time to verified batches, around damage."""

from headrace.storage.reading.backlog import Backlog, measure
from headrace.storage.reading.extent import Extent
from headrace.storage.reading.offset_checks import OffsetsSum
from headrace.storage.reading.reader import BatchPlace, PartitionReader, Tail, out_of_range
from headrace.storage.reading.time_search import TimedOffset, find_largest_timestamp, find_time

__all__ = [
    "Backlog",
    "BatchPlace",
    "Extent",
    "OffsetsSum",
    "PartitionReader",
    "Tail",
    "TimedOffset",
    "find_largest_timestamp",
    "find_time",
    "measure",
    "out_of_range",
]
