"""What is bounded: overloaded topics, quotas of clients, groups about to fall off the log."""

from headrace.broker.limits.lag import ACTIVE_MS, FallenGroups, GroupPosition, LagWatch, MeasuredLag
from headrace.broker.limits.memory import MemoryBudget, RequestMemory
from headrace.broker.limits.overload import Overload, OverloadedError
from headrace.broker.limits.quotas import CONSUMER, PRODUCER, Quotas

__all__ = [
    "ACTIVE_MS",
    "CONSUMER",
    "PRODUCER",
    "FallenGroups",
    "GroupPosition",
    "LagWatch",
    "MeasuredLag",
    "MemoryBudget",
    "Overload",
    "OverloadedError",
    "Quotas",
    "RequestMemory",
]
