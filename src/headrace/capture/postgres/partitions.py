"""What happens to one partition of a captured table by itself, which the stream does not tell of.

Changes of rows come as changes of the whole table (`publish_via_partition_root`). A partition that is
truncated, attached, detached or dropped changes its rows without any of them. A `mark` of all partitions
shows whether that has happened: their files are others, or they are. One that was created in its
place is empty, and does not count.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.capture.postgres.catalog import Table
from headrace.capture.postgres.wire import Connection

__all__ = ["Mark", "TablePartition", "mark_of", "read_partitions", "why_read_again"]

_TREE = (
    "SELECT c.oid, coalesce(pg_relation_filenode(c.oid), 0), i.xmin <> t.xmin "
    "FROM pg_partition_tree({root}) p JOIN pg_class c ON c.oid = p.relid "
    "JOIN pg_inherits i ON i.inhrelid = c.oid "
    "JOIN pg_type t ON t.oid = c.reltype WHERE p.level > 0"
)
_EXACT_IN_JSON = 1 << 53

# The newest of the partitions, and a sum over all; it must survive JSON.
Mark = Sequence[int]


@dataclass(frozen=True, slots=True)
class TablePartition:
    """A partition, the file of its rows, and whether it was a table of its own before."""

    oid: int
    file: int
    was_attached: bool

    @property
    def summand(self) -> int:
        digest = hashlib.blake2b(b"%d %d" % (self.oid, self.file), digest_size=6).digest()
        return int.from_bytes(digest, "big")


def read_partitions(connection: Connection, tables: Iterable[Table]) -> dict[str, list[TablePartition]]:
    """The partitions of each table that has any."""
    return {
        table.full_name: [
            TablePartition(int(oid or 0), int(file or 0), attached == "t")
            for oid, file, attached in connection.query(_TREE.format(root=table.oid))
        ]
        for table in tables
        if table.is_partitioned
    }


def mark_of(partitions: Iterable[TablePartition]) -> Mark:
    """By which these partitions are recognised later."""
    there = list(partitions)
    newest = max((each.oid for each in there), default=0)
    return [newest, sum(each.summand for each in there) % _EXACT_IN_JSON]


def why_read_again(known: Mapping[str, Mark], table: str, partitions: Sequence[TablePartition]) -> str:
    """Why the table has other rows than those that the stream told of; nothing if it has not."""
    if table not in known:
        return ""
    newest, total = known[table]
    before = [each for each in partitions if each.oid <= newest]
    if mark_of(before)[1] != total:
        return "a partition was truncated, attached, detached, dropped or rewritten"
    added = (each for each in partitions if each.oid > newest)
    return "a table was attached as a partition" if any(each.was_attached for each in added) else ""
