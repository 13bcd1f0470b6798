"""Records: produced, fetched, found by offset or time, and deleted."""

from headrace.broker.apis.records.fetch import FetchApis, Poll, start_fetch
from headrace.broker.apis.records.fetch_attempt import Attempt, Fetching
from headrace.broker.apis.records.offsets import OffsetApis
from headrace.broker.apis.records.produce import KnownProduce, Produce

__all__ = [
    "Attempt",
    "FetchApis",
    "Fetching",
    "KnownProduce",
    "OffsetApis",
    "Poll",
    "Produce",
    "start_fetch",
]
