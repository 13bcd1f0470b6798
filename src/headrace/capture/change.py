"""What a source hands over: changes, the transactions they belong to, and the schemas of tables.

Rows and keys are JSON, already encoded: a reader encodes each value once, in whatever is
fastest for it, and nothing is parsed again on the way to the log.
"""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from headrace.capture.envelope import Envelope

__all__ = [
    "Change",
    "ChangeBlock",
    "Column",
    "EncodedChanges",
    "Item",
    "Op",
    "Position",
    "Resnapshot",
    "RowBlock",
    "TableSchema",
    "Transaction",
    "one_by_one",
]

# Where a source continues reading. Only the source knows what is in it; it must survive JSON.
Position = Mapping[str, Any]

Op = Literal["c", "u", "d", "r", "t"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: its type as the database writes it, and as Spark reads what `envelope` makes of it."""

    name: str
    type: str
    spark_type: str
    optional: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """A table as it is from some position on; `table` is `schema.name`, unquoted.

    Without a primary key, `key` is empty: records then have no key, and the topic is not compacted.
    """

    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def spark_ddl(self) -> str:
        """The columns as a schema that `app.table` takes."""
        return ", ".join(f"`{each.name}` {each.spark_type}" for each in self.columns)


class Change(NamedTuple):
    """One row created, updated, deleted, read by a snapshot, or (`t`) all rows of a table at once.

    `key` is a JSON object of the primary key in column order. A row whose key changes is two
    changes, a delete and a create. `unchanged` names columns that are left out of `after`
    because the source did not send them: readers keep what they have. `source` are further
    members of the envelope's `source`, such as b'"lsn":2471'.
    """

    table: str
    op: Op
    key: bytes | None
    before: bytes | None
    after: bytes | None
    source: bytes = b""
    unchanged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resnapshot:
    """A table whose rows must be read again from here on, since not every change of it could be seen.

    `skipped` means that there was a change here whose content is not known.
    """

    table: str
    reason: str
    skipped: bool = False


Item = Change | TableSchema | Resnapshot


@dataclass(frozen=True, slots=True)
class EncodedChanges:
    """Changes as keys and values of records, in `octets`.

    Seven `numbers` for each: the number of its table in `tables`, the letter of its op, start and length
    of its key (-1: none), start and length of its value, and a zero. All of it may be written over as
    soon as the next changes are asked for.
    """

    octets: bytearray | memoryview
    numbers: "array[int]"
    count: int
    tables: Mapping[int, str]


class ChangeBlock(ABC):
    """Several changes in a row of one transaction, which the source can encode at once."""

    tables: Collection[str]

    @abstractmethod
    def changes(self) -> Iterator[Item]:
        """One by one, for a caller that has to look at each."""

    @abstractmethod
    def encoded(self, envelope: "Envelope", now_ms: int) -> Iterator[EncodedChanges | Item]:
        """As records with this envelope, in which they are counted; those that are not plain by themselves.

        To be asked for last, and once: a large row is freed as soon as it is encoded. The same bytes as
        `envelope.value` makes of each change.
        """


class RowBlock(ABC):
    """Rows of one table that a snapshot has read, which the source can encode at once."""

    @abstractmethod
    def rows(self) -> Iterator[Change]:
        """One by one, for a caller that has to look at each."""

    @abstractmethod
    def encoded(self, envelope: "Envelope", read_us: int, now_ms: int) -> Iterator[EncodedChanges | Change]:
        """As records with this envelope; those that are not plain by themselves. Asked for last, and once.

        The same bytes as `envelope.snapshot_value` makes of each row.
        """


def one_by_one(items: Iterable[Item | ChangeBlock]) -> Iterator[Item]:
    """The items without blocks."""
    for item in items:
        if isinstance(item, ChangeBlock):
            yield from item.changes()
        else:
            yield item


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One transaction of the source, or several that it cannot tell apart; always whole.

    `changes` is consumed once, and may be larger than memory; a source may hand several of them
    over in one block. A `TableSchema` among them comes before the first change that has it.
    `position` is where reading continues after it. A transaction without changes only moves the
    position.
    """

    id: str
    position: Position
    committed_us: int
    changes: Iterable[Item | ChangeBlock]
