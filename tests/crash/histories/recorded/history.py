"""What happened, put together from the events of all processes.

A value is written once in its life and names its writer: `process/transaction/number`, where
the transaction is `-` outside of one. So a value that is found twice was doubled by
somebody else.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from recorded.recorder import Event

__all__ = ["History", "Init", "Outcome", "Place", "Run", "Seen", "Transaction", "Write", "history_of"]


class Place(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int


class Seen(NamedTuple):
    """A record as a consumer was given it, and when."""

    at: int
    offset: int
    value: str


@dataclass(slots=True, kw_only=True)
class Write:
    """One record that was to be written; `source` is the one it was made from, if any."""

    value: str
    topic: str
    partition: int
    invoked_at: int
    transaction: str | None = None
    source: Place | None = None
    acked_at: int | None = None
    offset: int | None = None


class Outcome(StrEnum):
    """What is known of a transaction; one whose commit was never attempted is aborted."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True, kw_only=True)
class Transaction:
    """A transaction of one instance of a transactional id."""

    name: str
    instance: str
    writes: list[str] = field(default_factory=list)
    commit_invoked_at: int | None = None
    outcome: Outcome = Outcome.ABORTED


@dataclass(slots=True, kw_only=True)
class Init:
    """An instance of a producer that took over its transactional id."""

    instance: str
    transactional_id: str
    invoked_at: int
    done_at: int | None = None
    fenced: str = ""


@dataclass(slots=True, kw_only=True)
class Run:
    """What a consumer was given of one partition while it had it, in the order of polling.

    `start` is where it began, if it chose that itself; `committed`: under read_committed.
    """

    process: str
    topic: str
    partition: int
    committed: bool
    group: str | None = None
    start: int | None = None
    seen: list[Seen] = field(default_factory=list)


@dataclass(slots=True)
class History:
    """Everything; `log` and `log_committed` were read when all was over, under either isolation."""

    writes: dict[str, Write] = field(default_factory=dict)
    transactions: dict[str, Transaction] = field(default_factory=dict)
    inits: dict[str, Init] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    log: list[tuple[Place, str]] = field(default_factory=list)
    log_committed: list[tuple[Place, str]] = field(default_factory=list)
    group_offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)


def history_of(events: Iterable[Event]) -> History:
    """Reads events in the order of their times."""
    reader = _Reader()
    for event in sorted(events, key=lambda event: event["at"]):
        getattr(reader, f"{event['f']}_{event['type']}", _ignore)(event)
    return reader.history


def _ignore(_: Event) -> None:
    """An event that tells a person something, and the invariants nothing."""


class _Reader:
    """One method for each kind of event that counts."""

    def __init__(self) -> None:
        self.history = History()
        self._open: dict[tuple[str, str, int], Run] = {}

    # --- producers

    def init_invoke(self, event: Event) -> None:
        self.history.inits[event["instance"]] = Init(
            instance=event["instance"], transactional_id=event["txid"], invoked_at=event["at"]
        )

    def init_ok(self, event: Event) -> None:
        self.history.inits[event["instance"]].done_at = event["at"]

    def fenced_info(self, event: Event) -> None:
        self.history.inits[event["instance"]].fenced = event["why"]

    def refused_info(self, event: Event) -> None:
        self.history.refusals.append(f"{event['process']}: {event['why']}")

    def begin_invoke(self, event: Event) -> None:
        name = event["txn"]
        self.history.transactions[name] = Transaction(name=name, instance=event["instance"])

    def send_invoke(self, event: Event) -> None:
        write = Write(
            value=event["value"],
            topic=event["topic"],
            partition=event["partition"],
            invoked_at=event["at"],
            transaction=event.get("txn"),
            source=Place(*event["source"]) if "source" in event else None,
        )
        self.history.writes[write.value] = write
        if write.transaction is not None:
            self.history.transactions[write.transaction].writes.append(write.value)

    def send_ok(self, event: Event) -> None:
        write = self.history.writes[event["value"]]
        write.acked_at, write.offset = event["at"], event["offset"]

    def end_invoke(self, event: Event) -> None:
        transaction = self.history.transactions[event["txn"]]
        if event["commit"] and transaction.commit_invoked_at is None:
            transaction.commit_invoked_at = event["at"]
            transaction.outcome = Outcome.UNKNOWN

    def end_ok(self, event: Event) -> None:
        transaction = self.history.transactions[event["txn"]]
        transaction.outcome = Outcome.COMMITTED if event["commit"] else Outcome.ABORTED

    # --- consumers

    def assign_ok(self, event: Event) -> None:
        for topic, partition, start in event["partitions"]:
            run = Run(
                process=event["process"],
                topic=topic,
                partition=partition,
                committed=event["committed"],
                group=event.get("group"),
                start=start,
            )
            self._open[event["process"], topic, partition] = run
            self.history.runs.append(run)

    def poll_ok(self, event: Event) -> None:
        for topic, partition, offset, value in event["records"]:
            run = self._open[event["process"], topic, partition]
            run.seen.append(Seen(event["at"], offset, value))

    # --- when all is over

    def log_ok(self, event: Event) -> None:
        into = self.history.log_committed if event["committed"] else self.history.log
        into += [(Place(*place), value) for *place, value in event["records"]]

    def offsets_ok(self, event: Event) -> None:
        for topic, partition, offset in event["offsets"]:
            self.history.group_offsets[event["group"], topic, partition] = offset
