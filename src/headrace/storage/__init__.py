"""Files: the partitions of a log, kept so that what is acknowledged survives.

A `DataDirectory` holds topics, a `Topic` holds one `PartitionLog` a partition,
a log holds segments. Promises: a batch below the high watermark is synced to
the disk; offsets are never given twice; bytes that fail their check are never
served, and what is valid behind them stays readable; nothing is dropped without
a report. `docs/storage.md` gives the file format and the recovery rules.

No asyncio: the thread rule is written on `PartitionLog`. Every call to the file
system goes through a `Disk`. Imports `records`, `config` and `errors`.
"""

from headrace.records import Marker
from headrace.storage.aborted import AbortedTransaction
from headrace.storage.compaction import CompactionLimits
from headrace.storage.damage import Damage
from headrace.storage.directory import DataDirectory, Topic, check_topic_name
from headrace.storage.disk import Disk
from headrace.storage.extent import Extent
from headrace.storage.files import Files
from headrace.storage.log import Appended, Lone, PartitionLog, TimedOffset
from headrace.storage.newest import Newest
from headrace.storage.producers import OpenTransaction, ProducerState
from headrace.storage.topic_config import TopicConfig
from headrace.storage.writer import Queued

__all__ = [
    "AbortedTransaction",
    "Appended",
    "CompactionLimits",
    "Damage",
    "DataDirectory",
    "Disk",
    "Extent",
    "Files",
    "Lone",
    "Marker",
    "Newest",
    "OpenTransaction",
    "PartitionLog",
    "ProducerState",
    "Queued",
    "TimedOffset",
    "Topic",
    "TopicConfig",
    "check_topic_name",
]
