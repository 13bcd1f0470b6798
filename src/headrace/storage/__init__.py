"""Files: the partitions of a log, kept so that what is acknowledged survives.

A `DataDirectory` holds topics, a `Topic` holds one `PartitionLog` a partition,
a log holds segments. Promises: a batch below the high watermark is synced to
the disk; offsets are never given twice; bytes that fail their check are never
served, and what is valid behind them stays readable; nothing is dropped without
a report. `docs/explanation/storage.md` gives the file format and the recovery rules.

No asyncio: the thread rule is written on `PartitionLog`. Every call to the file
system goes through a `Disk`. Imports `records`, `config` and `errors`.
"""

from headrace.records import Marker
from headrace.storage.compaction import CompactionLimits
from headrace.storage.directory.directory import DataDirectory, Topic, check_topic_name
from headrace.storage.disk import Damage, Disk, UnreadableBytes
from headrace.storage.partition.fresh_batches import FreshBatches
from headrace.storage.partition.log import Appended, DirectAppend, PartitionLog, TimedOffset
from headrace.storage.partition.writer import QueuedBatch
from headrace.storage.producers import AbortedTransaction, OpenTransaction, ProducerState
from headrace.storage.reading import Extent
from headrace.storage.segments import Files
from headrace.storage.topic_config import TopicConfig

__all__ = [
    "AbortedTransaction",
    "Appended",
    "CompactionLimits",
    "Damage",
    "DataDirectory",
    "DirectAppend",
    "Disk",
    "Extent",
    "Files",
    "FreshBatches",
    "Marker",
    "OpenTransaction",
    "PartitionLog",
    "ProducerState",
    "QueuedBatch",
    "TimedOffset",
    "Topic",
    "TopicConfig",
    "UnreadableBytes",
    "check_topic_name",
]
