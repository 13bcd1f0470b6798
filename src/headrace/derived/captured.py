"""Compares the tables of a database with the topics that their capture writes, row by row.

The tables are read in one state of the database while others write. Then the capture must pass that state,
and each topic is folded: of its records, those count whose change the state contains. So both
sides are of the same moment, whatever happens meanwhile. As with followers, checksums come first, and
rows are compared where these differ.

Compaction, or a table that is being read again, can take away what a topic said of a key at that
moment. Then the key has changed since, and the table is compared once more.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import orjson

from headrace.capture import (
    CaptureSpec,
    CaptureState,
    Catalog,
    FrozenTables,
    TableSchema,
    open_source,
    table_topic,
)
from headrace.client import Connection
from headrace.derived.capture_log import CaptureLog
from headrace.derived.changes import Row
from headrace.derived.compare import RANGES, Difference, difference_of, range_of, range_sums
from headrace.derived.expected import ExpectedRows
from headrace.derived.topic import TopicReader, TopicRecord
from headrace.errors import RequestError

__all__ = ["MOST_NAMED", "CaptureVerification", "TableVerification", "verify_capture"]

MOST_NAMED = 20
_ROUNDS = 3
_SAY_ROWS = 100_000
# A commit is in the log of a database before a snapshot shows it: more records than that can be of.
_DOUBTFUL = 20_000

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVerification:
    """A table and its topic: how many rows the database has, how many differ, and the first that do.

    `reason` is why it was not compared. In a difference, `expected` is what the database has, and
    `found` what the topic says.
    """

    table: str
    topic: str
    rows: int = 0
    differing_ranges: int = 0
    differing: int = 0
    differences: tuple[Difference, ...] = ()
    reason: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether it was compared, and no row differs."""
        return not (self.differing or self.reason)

    def to_json(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "topic": self.topic,
            "equal": self.is_equal,
            "reason": self.reason or None,
            "rows": self.rows,
            "ranges": RANGES,
            "differing_ranges": self.differing_ranges,
            "differing": self.differing,
            "differences": [
                {
                    "key": each.identity.decode(errors="backslashreplace"),
                    "kind": each.kind,
                    "database": each.expected,
                    "topic": each.found,
                }
                for each in self.differences
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureVerification:
    """What was found of each table of a capture."""

    capture: str
    tables: tuple[TableVerification, ...]

    @property
    def is_equal(self) -> bool:
        """Whether every table was compared, and no row differs."""
        return all(each.is_equal for each in self.tables)

    @property
    def differs(self) -> bool:
        """Whether any row differs."""
        return any(each.differing for each in self.tables)

    def to_json(self) -> dict[str, Any]:
        """As `headrace capture verify --json` shows it."""
        return {
            "capture": self.capture,
            "equal": self.is_equal,
            "tables": [each.to_json() for each in self.tables],
        }


def verify_capture(
    name: str,
    catalog: Catalog,
    connection: Connection,
    *,
    tables: Collection[str] = (),
    timeout_s: float = 60.0,
    on_progress: Say = lambda _: None,
) -> CaptureVerification:
    """Compares the capture's tables with their topics; without `tables`, all that it has.

    Waits up to `timeout_s` until the capture has passed the state that was read. Raises RequestError
    if it does not get there, or does not run, or if the database cannot be compared.
    """
    with CaptureLog(connection, catalog, name, timeout_s) as log:
        verifier = _Verifier(log, connection, on_progress)
        found = verifier.verified(tables)
    return CaptureVerification(capture=name, tables=tuple(each for _, each in sorted(found.items())))


class _Verifier:
    """Compares in rounds; a table takes part in the next one if the log could not tell all of it."""

    def __init__(self, log: CaptureLog, connection: Connection, say: Say) -> None:
        self._log, self._connection, self._say = log, connection, say
        self._spec = log.spec()

    def verified(self, wanted: Collection[str]) -> dict[str, TableVerification]:
        self._log.require_not("stopped", lacks=f"capture {self._log.name} cannot be compared")
        found: dict[str, TableVerification] = {}
        doubtful = self._round(wanted, found)
        for _ in range(_ROUNDS - 1):
            if doubtful:
                names = ", ".join(sorted(doubtful))
                self._say(f"{names}: compared once more, as rows that differ have changed")
                doubtful = self._round(doubtful, found)
        return found

    def _round(self, wanted: Collection[str], found: dict[str, TableVerification]) -> set[str]:
        """Compares these tables, all if none is named; those of which the log did not tell all."""
        name = self._log.name
        before = self._log.wait(
            lambda state: all(
                each.phase == "done" for table, each in state.tables.items() if _is_among(table, wanted)
            ),
            f"capture {name} has not read every table yet",
        )
        source = open_source(self._spec)
        with closing(source), source.freeze() as frozen:
            schemas = self._chosen(frozen.schemas(), before, wanted, found)
            sums = {table: range_sums(self._read(frozen, table)) for table in schemas}
            self._log.wait(
                lambda state: state.position is not None and frozen.reached(state.position),
                f"capture {name} has not written everything that the database has",
            )
            doubtful = set()
            for table, (checksums, count) in sums.items():
                compared = _Comparison(frozen, table, before, self._spec, self._connection)
                found[table], is_doubtful = compared.with_sums(checksums, count)
                if is_doubtful:
                    doubtful.add(table)
        return doubtful

    def _chosen(
        self,
        schemas: Mapping[str, TableSchema],
        state: CaptureState,
        wanted: Collection[str],
        found: dict[str, TableVerification],
    ) -> list[str]:
        """The tables to compare; of those that cannot be, it notes why."""
        outbox = set(self._spec.outbox)
        captured = [each for each in state.tables if not {each, each.partition(".")[2]} & outbox]
        for each in wanted:
            if not any(_is_among(table, [each]) for table in captured):
                there = ", ".join(sorted(captured)) or "none yet"
                raise RequestError(f"capture {self._log.name} has no table {each!r}; it has: {there}")
        chosen = []
        for table in captured:
            if not _is_among(table, wanted):
                continue
            reason = _why_not(schemas.get(table))
            topic = table_topic(self._log.name, table)
            found[table] = TableVerification(table=table, topic=topic, reason=reason)
            if not reason:
                chosen.append(table)
        return chosen

    def _read(self, frozen: FrozenTables, table: str) -> Iterator[tuple[bytes, Row]]:
        count = 0
        for row in _rows(frozen, table, self._spec.chunk_rows):
            count += 1
            if count % _SAY_ROWS == 0:
                self._say(f"{table}: {count:,} rows read")
            yield row
        self._say(f"{table}: all {count:,} rows read")


def _is_among(table: str, wanted: Collection[str]) -> bool:
    return not wanted or bool({table, table.partition(".")[2]} & set(wanted))


def _why_not(schema: TableSchema | None) -> str:
    if schema is None:
        return "the database has no such table"
    return "" if schema.key else "it has no primary key, which tells rows apart"


def _rows(frozen: FrozenTables, table: str, chunk_rows: int) -> Iterator[tuple[bytes, Row]]:
    for each in frozen.rows(table, chunk_rows):
        assert each.key is not None and each.after is not None, "rows of a table with a key"
        yield each.key, orjson.loads(each.after)


class _Contained:
    """Which records of a topic tell of changes that the state contains.

    `before` are the ends of its partitions before the state was read. `doubtful` are the keys of which
    the log may have had more to tell: they have changed since, or were read by another snapshot.
    """

    def __init__(self, frozen: FrozenTables, before: Mapping[int, int]) -> None:
        self._frozen, self._before = frozen, before
        self._later: set[bytes] = set()
        self._read_again: set[bytes] = set()

    @property
    def doubtful(self) -> set[bytes]:
        return self._later | self._read_again

    def __call__(self, record: TopicRecord) -> bool:
        end = self._before.get(record.partition, 0)
        if record.offset < end - _DOUBTFUL or record.key is None:
            return True
        if record.key in self._later:
            return False
        contained = self._frozen.sees(_source_of(record.value))
        if contained is None and record.value is not None and record.offset >= end:
            self._read_again.add(record.key)
        if contained is False:
            self._later.add(record.key)
        return contained is not False


def _source_of(value: bytes | None) -> Mapping[str, Any]:
    try:
        said = orjson.loads(value) if value is not None else None
    except ValueError:
        return {}
    source = said.get("source") if isinstance(said, dict) else None
    return source if isinstance(source, dict) else {}


class _Comparison:
    """One table and its topic, once the capture has passed the state."""

    def __init__(
        self,
        frozen: FrozenTables,
        table: str,
        before: CaptureState,
        spec: CaptureSpec,
        connection: Connection,
    ) -> None:
        self._frozen, self._table, self._spec = frozen, table, spec
        self._topic, self._connection = table_topic(spec.name, table), connection
        ends = before.offsets.get(self._topic, {})
        self._contained = _Contained(frozen, {int(each): at for each, at in ends.items()})

    def with_sums(self, sums: list[int], count: int) -> tuple[TableVerification, bool]:
        """What was found, and whether it needs to be looked at again."""
        said = TableVerification(table=self._table, topic=self._topic, rows=count)
        with TopicReader(self._connection, self._topic) as reader, ExpectedRows() as told:
            told.read(reader, reader.facts().starts, reader.ends(), "debezium", self._contained)
            of_topic, _ = range_sums(told)
            ranges = {each for each in range(RANGES) if sums[each] != of_topic[each]}
            if not ranges:
                return said, False
            return self._with_rows(replace(said, differing_ranges=len(ranges)), told, ranges)

    def _with_rows(
        self, said: TableVerification, told: ExpectedRows, ranges: Collection[int]
    ) -> tuple[TableVerification, bool]:
        named: list[Difference] = []
        doubtful, count, is_doubtful = self._contained.doubtful, 0, False
        for each in self._differences(told, ranges):
            count += 1
            is_doubtful = is_doubtful or each.identity in doubtful
            if len(named) < MOST_NAMED:
                named.append(each)
        return replace(said, differing=count, differences=tuple(named)), is_doubtful

    def _differences(self, told: ExpectedRows, ranges: Collection[int]) -> Iterator[Difference]:
        """Those of the database's rows, one by one; then what only the topic has, which is left of `told`."""
        for key, row in _rows(self._frozen, self._table, self._spec.chunk_rows):
            if range_of(key) in ranges:
                found = difference_of(key, row, told.pop(key))
                if found is not None:
                    yield found
        for key, row in told:
            found = difference_of(key, None, row) if range_of(key) in ranges else None
            if found is not None:
                yield found
