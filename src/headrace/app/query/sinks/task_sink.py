"""The sink of a task: what it makes of a batch is written from its executor, exactly once.

The stage of a query has a fixed number of tasks, its *slots*; a bucket, and so a partition whose
rows have no key, belongs to one of them. Each slot writes its records in transactions of its own,
under a name and with numbers of its own: a slot that is given a batch again, to another attempt of
the task, on another executor or after a restart, finds the batch's number and writes nothing. A
batch is the same whenever it is computed, so it does not matter which attempt wrote which slot.
The driver gets counts and marks, no rows.

Changes of views are brought to their stores in the same way, out of readers' sight (`StagingStore`); the
driver's transaction of the batch takes up what the attempts that succeeded have brought.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import pyarrow as pa

from headrace.app.plan.plan import PlannedStream
from headrace.app.query.checkpoint import slot_name
from headrace.app.query.sinks.batch_output import collect
from headrace.app.query.sinks.batch_records import BatchRecords
from headrace.app.query.sinks.sink import ViewWriter, row_changes, write_fitting
from headrace.client import Connection
from headrace.client.topics import TopicSettings
from headrace.client.write import OutputRecord, RecordSink
from headrace.errors import RetriableError
from headrace.streams.engine import BlobKind, Outgoing, decode_table, encode_json
from headrace.views import StagedChanges, Stager, StagingStore, ViewSchema, without_misfits

__all__ = ["SlotRecords", "StagedView", "TaskSink", "staged_views"]

Limits = Mapping[str, int]

_ASIDES = (BlobKind.LATE, BlobKind.FORGOTTEN, BlobKind.UNFIT, BlobKind.FAILED, BlobKind.DEAD)
_MOST_OPEN = 4  # of one process: Spark gives it whichever tasks it has


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRecords:
    """Writes the records of slots; plain data, and what is open is kept by the process.

    `require_owner` is that of `RecordSink`; it can be hashed, and tells one run from another.
    """

    connection: Connection
    name: str
    query_id: str
    topics: Mapping[str, TopicSettings]
    require_owner: Callable[[], None]

    def write(self, slot: int, batch_id: int, make: Callable[[Limits], Iterator[OutputRecord]]) -> None:
        """Writes a slot's part of a batch, unless that is on the log.

        What this process has open may have been fenced by another that had the slot since then: it is
        opened again, once.
        """
        was_open, sink, limits = _opened.of(self, slot)
        try:
            write_fitting(sink, batch_id, limits, lambda: make(limits))
        except RetriableError:
            if not was_open:
                raise
            write_fitting(sink, batch_id, limits, lambda: make(limits))

    def open(self, slot: int) -> RecordSink:
        return RecordSink(
            self.connection,
            slot_name(self.name, slot),
            self.query_id,
            topics=self.topics,
            require_owner=self.require_owner,
        )


class _Opened:
    """The writers that this process has open, the one that was used last at the end."""

    def __init__(self) -> None:
        self._sinks: dict[Hashable, tuple[RecordSink, dict[str, int]]] = {}

    def of(self, records: SlotRecords, slot: int) -> tuple[bool, RecordSink, dict[str, int]]:
        """Whether it was open, the writer of a slot, and what its topics take that take less than asked."""
        key = (records.connection, records.name, records.query_id, records.require_owner, slot)
        known = self._sinks.pop(key, None)
        found = known or (records.open(slot), {})
        self._sinks[key] = found
        while len(self._sinks) > _MOST_OPEN:
            sink, _ = self._sinks.pop(next(iter(self._sinks)))
            sink.close()
        return known is not None, *found


_opened = _Opened()


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedView:
    """A view whose changes tasks bring to its store: what writes them, and the rows that they are of.

    `is_stateful` is whether the tasks make changes, and not rows as they are.
    """

    stager: Stager
    schema: ViewSchema
    is_stateful: bool

    def fitting(self, tables: Sequence[pa.Table]) -> tuple[pa.Table, pa.Table | None]:
        """The changes that the store can keep, and what is set aside."""
        changes = pa.concat_tables(tables) if self.is_stateful else row_changes(self.schema, tables)
        return without_misfits(self.stager, self.schema, changes)

    def stage(self, changes: pa.Table, batch_id: int) -> StagedChanges:
        return self.stager.stage(changes, batch_id=batch_id, distinct=self.is_stateful)


def staged_views(planned: PlannedStream, writers: Mapping[str, ViewWriter]) -> dict[int, StagedView]:
    """The views, by number, to whose stores tasks bring changes; those built out of sight are left out."""
    found: dict[int, StagedView] = {}
    for number, each in enumerate(planned.views):
        writer = writers.get(each.view.name)
        if isinstance(writer, StagingStore):
            is_stateful = each.plan.stateful is not None
            stager = writer.stager(each.schema)
            found[number] = StagedView(stager=stager, schema=each.schema, is_stateful=is_stateful)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSink:
    """Takes the results of a task, writes what goes to topics and to views, and passes on the rest."""

    made: BatchRecords
    records: SlotRecords
    views: Mapping[int, StagedView] = field(default_factory=dict)
    _row_topics: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        topics = frozenset(number for number, view in enumerate(self.made.views) if view.rows is not None)
        object.__setattr__(self, "_row_topics", topics)

    def __call__(self, slot: int, batch_id: int, messages: Iterator[Outgoing]) -> Iterator[Outgoing]:
        own: list[Outgoing] = []
        others: list[Outgoing] = []
        found: dict[int, list[pa.Table]] = {}
        for message in messages:
            view, kind, blob = message
            if self._is_record(message):
                own.append(message)
            elif view in self.views and kind in (BlobKind.CHANGES, BlobKind.ROWS):
                found.setdefault(view, []).append(decode_table(blob))
            else:
                others.append(message)
        fitting = {view: self.views[view].fitting(tables) for view, tables in found.items()}
        output = collect(own)
        for view, (_, aside) in fitting.items():
            if aside is not None:
                output.unfit.setdefault(view, []).append(aside)
        if own or output.unfit:
            self.records.write(slot, batch_id, lambda limits: self.made.make(output, limits))
        yield from others
        for view, (changes, _) in fitting.items():
            staged = self.views[view].stage(changes, batch_id)
            yield view, BlobKind.STAGED, encode_json(asdict(staged))

    def _is_record(self, message: Outgoing) -> bool:
        view, kind, _ = message
        return kind in _ASIDES or (kind is BlobKind.ROWS and view in self._row_topics)
