"""Partitions as the broker serves them: appends, commits, and who waits for what."""

from headrace.broker.log.committer import SMALL_BYTES, Committer
from headrace.broker.log.inspection import Inspector
from headrace.broker.log.partition import Partition
from headrace.broker.log.threads import WorkerThreads
from headrace.broker.log.topics import INTERNAL_TOPICS, Topics
from headrace.broker.log.upkeep import Upkeep

__all__ = [
    "INTERNAL_TOPICS",
    "SMALL_BYTES",
    "Committer",
    "Inspector",
    "Partition",
    "Topics",
    "Upkeep",
    "WorkerThreads",
]
