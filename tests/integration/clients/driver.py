"""What every client must be able to do; the suite is written against this and nothing else.

Errors are Kafka's own codes (`DriverError.code`), whatever exception the client
dresses them in; -1 is an error the client made up itself. What a client cannot
do at all raises `Unsupported`, and the test says so when it skips.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Headers = tuple[tuple[str, bytes | None], ...]


class DriverError(Exception):
    """A request was refused, with Kafka's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"[{code}] {message}")
        self.code = code


class Unsupported(Exception):  # noqa: N818 - a statement about the client, not a failure
    """The client has no such function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is handed to a producer; partition None lets the key choose, timestamp None the clock."""

    value: bytes | None = None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Where an acknowledged message went."""

    partition: int
    offset: int
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a consumer received."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    append_time: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """An answer of list-offsets; offset -1 where no record qualifies."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """How a member of a group is opened."""

    group: str
    topics: Sequence[str]
    protocol: str = "classic"
    assignor: str | None = None
    instance_id: str | None = None
    session_timeout_ms: int = 15_000
    allow_auto_create: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberState:
    """A member as it is now; `records` are those that came since the last look.

    `revoked` are the partitions that were ever taken from it.
    """

    assigned: frozenset[tuple[str, int]]
    revoked: frozenset[tuple[str, int]]
    rebalances: int
    records: tuple[Record, ...]
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group as the admin client sees it."""

    state: str
    members: int
    assigned: frozenset[tuple[str, int]]


class Driver(ABC):
    """One client library, connected to one log."""

    @abstractmethod
    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        max_request_bytes: int = 1 << 20,
    ) -> list[Sent]:
        """Send all with acks=all and wait; raises the first refusal."""

    @abstractmethod
    def read(
        self, topic: str, start: Mapping[int, int], count: int, *, timeout_s: float = 60
    ) -> list[Record]:
        """Read exactly `count` records from the given offsets on, in no group."""

    @abstractmethod
    def offset(self, topic: str, partition: int, at: str | int) -> Position:
        """List-offsets: "earliest", "latest", "max_timestamp" or a time in milliseconds."""

    @abstractmethod
    def create_topic(
        self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None: ...

    @abstractmethod
    def delete_topic(self, topic: str) -> None: ...

    @abstractmethod
    def topics(self) -> list[str]: ...

    @abstractmethod
    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has, each with a leader; never creates it."""

    @abstractmethod
    def config(self, topic: str) -> dict[str, str | None]: ...

    @abstractmethod
    def alter_config(self, topic: str, config: Mapping[str, str]) -> None: ...

    @abstractmethod
    def create_partitions(self, topic: str, total: int) -> None: ...

    @abstractmethod
    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete everything below the offsets; the new log starts."""

    @abstractmethod
    def groups(self) -> list[str]: ...

    @abstractmethod
    def describe_group(self, group: str) -> GroupDescription: ...

    @abstractmethod
    def delete_group(self, group: str) -> None: ...

    @abstractmethod
    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The group's offsets for the topic; partitions without one are left out."""

    @abstractmethod
    def alter_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set offsets of a group without members."""

    @abstractmethod
    def join(self, membership: Membership) -> int:
        """Open a member that polls by itself from now on; the handle for the calls below."""

    @abstractmethod
    def member(self, handle: int) -> MemberState: ...

    @abstractmethod
    def commit(self, handle: int, topic: str, offsets: Mapping[int, int]) -> None: ...

    @abstractmethod
    def leave(self, handle: int) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


def message_from(fields: Mapping[str, Any]) -> Message:
    return Message(**{**fields, "headers": tuple((name, value) for name, value in fields["headers"])})


def record_from(fields: Mapping[str, Any]) -> Record:
    return Record(**{**fields, "headers": tuple((name, value) for name, value in fields["headers"])})
