"""Views as changelogs on topics, of our log or of Kafka.

A batch is one transaction: its changes, its ledger record, and its number as the offset of a
consumer group. Readers of committed records see whole batches, in order; the view itself is
obtained by applying the changes. `headrace.views.topic.changelog_records` has the format.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.client import (
    EARLIEST,
    LARGE_RECORD_CONFIGS,
    LARGEST_RECORD_BYTES,
    LATEST,
    Connection,
    RawFetcher,
)
from headrace.client.topics import KEEP_ALL, TopicSettings, drop_topic, ensure_topics, topic_names
from headrace.client.write import (
    OutputRecord,
    RecordTooLarge,
    TransactionalWriter,
    fitting_changes,
    smaller_limit,
)
from headrace.errors import ConfigError, RequestError, RetriableError
from headrace.records import decode_columns
from headrace.views.batch import ViewBatch
from headrace.views.changes import ViewChange
from headrace.views.ledger import Accepted, Ledger, Reflected
from headrace.views.schema import ViewSchema
from headrace.views.selection import Choose, select
from headrace.views.store import LedgeredStore, Snapshot, require_view
from headrace.views.topic.changelog_records import (
    LEDGER_KEY,
    LedgerRecord,
    change_records,
    ledger_records,
    read_ledger_record,
    rebuild_records,
)
from headrace.views.topic.changelog_rows import ChangelogRows
from headrace.wire import ErrorCode

__all__ = ["TopicStore"]

_TAIL_OFFSETS = 256
_POLL_S = 0.01


@dataclass(slots=True)
class _Followed:
    """A view that this process reads: its rows so far, and the next offsets."""

    rows: ChangelogRows
    topic_id: Any
    next: dict[int, int]


class TopicStore(LedgeredStore):
    """A ViewStore on topics: `name` is one view's topic, or, if it ends with `*`, the prefix of several,
    to which each view's name is appended.

    `compacted` keeps the newest change of each row instead of all of them. Rows that are larger than
    the topic takes go to the topic `dead_letters`; without one, they fail the batch. Reading applies
    new records to rows in memory: meant for views that fit in memory, and for consumers that follow
    the topic themselves.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        *,
        partitions: int = 1,
        compacted: bool = False,
        properties: Mapping[str, Any] | None = None,
        dead_letters: str | None = None,
    ) -> None:
        if partitions < 1 or not name:
            raise ConfigError(
                f"views on topic {name!r} with {partitions} partitions: name it, and give 1 or more"
            )
        self._connection = connection
        self._name = name
        self._compacted = compacted
        self._settings = TopicSettings(partitions=partitions, configs=_configs(compacted=compacted))
        self._properties = dict(properties or {})
        self._dead_letters = dead_letters
        self._limits: dict[str, int] = {}  # of topics that take less than they should
        self._written: dict[str, _Written] = {}
        self._followed: dict[str, _Followed] = {}
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        self._fetcher = RawFetcher(connection)  # used by the holder of the read lock

    def prepare(self, schema: ViewSchema) -> None:
        with self._write_lock:
            topic = self._topic(schema.name)
            newest = self._tail(topic)
            if newest is not None and newest.ledger.schema.name == schema.name:
                newest.ledger.require_rows_of(schema)
                ensure_topics(self._connection, {topic: self._settings}, self._properties)
                return
            if newest is not None or self._has_records(topic):
                raise RequestError(
                    f"topic {topic!r} has records that are not of view {schema.name!r}; choose another topic"
                )
            ensure_topics(self._connection, {topic: self._settings}, self._properties)
            with RawFetcher(self._connection) as fetcher:
                partitions = len(fetcher.layout(topic).leaders)
            first = LedgerRecord(-1, partitions, Ledger(schema=schema))
            written = self._written[schema.name] = _Written(self._producer(topic), first)
            self._write(written, topic, first.ledger, tuple)

    def begin(
        self, view: str, query_id: str, *, schema: ViewSchema | None = None, first_batch: int = 0
    ) -> Reflected:
        with self._write_lock:
            written = self._owned(view, take_over=True)
            ledger = written.newest.ledger.begin(query_id, schema, first_batch)
            self._write(written, self._topic(view), ledger, tuple)
            return ledger.reflected

    def apply(self, view: str, batch: ViewBatch) -> bool:
        with self._write_lock:
            written = self._owned(view)
            accepted = written.newest.ledger.accept(batch)
            if accepted is None:
                return False
            changed = 0 if batch.changes is None else batch.changes.num_rows
            ledger = accepted.ledger.with_sequence(accepted.ledger.sequence + changed)
            self._write(
                written,
                self._topic(view),
                ledger,
                lambda: self._records(view, batch, accepted),
                set_aside=True,
            )
            return True

    def _snapshot(self, view: str, choose: Choose) -> Snapshot:
        ledger, rows = self._rows(view)
        selection = choose(ledger.schema)
        return Snapshot(select(rows, selection), ledger.reflected)

    def changes(self, view: str, since: int = 0, limit: int = 1_000) -> list[ViewChange]:
        del since, limit
        raise RequestError(f"the changes of view {view!r} are the topic {self._topic(view)!r}: consume it")

    def views(self) -> list[str]:
        """Those whose newest record is a ledger's, and our own: their last commit may show a moment later."""
        own = {self._topic(view): view for view in list(self._written)}
        topics = [self._name]
        if self._name.endswith("*"):
            topics = [each for each in topic_names(self._connection) if each.startswith(self._name[:-1])]
        tails = {topic: self._tail(topic) for topic in topics}
        names = {
            topic: own.get(topic) if tail is None else tail.ledger.schema.name
            for topic, tail in tails.items()
        }
        return sorted(
            name for topic, name in names.items() if name is not None and self._topic(name) == topic
        )

    def drop(self, view: str) -> None:
        with self._write_lock, self._read_lock:
            written = self._written.pop(view, None)
            if written is not None:
                written.producer.close()
            self._followed.pop(view, None)
            if view in self.views():
                drop_topic(self._connection, self._topic(view), self._properties)

    def close(self) -> None:
        with self._write_lock, self._read_lock:
            for each in self._written.values():
                each.producer.close()
            self._written.clear()
            self._followed.clear()
            self._fetcher.close()

    def _topic(self, view: str) -> str:
        return self._name[:-1] + view if self._name.endswith("*") else self._name

    # --- writing ------------------------------------------------------------------------------

    def _producer(self, topic: str) -> TransactionalWriter:
        return TransactionalWriter(self._connection, f"view-{topic}", properties=self._properties)

    def _owned(self, view: str, *, take_over: bool = False) -> "_Written":
        """The view as its owner knows it: taken over and read from the topic, unless this process owns it."""
        written = self._written.get(view)
        if written is not None and written.producer.is_open and not take_over:
            return written
        with RawFetcher(self._connection) as fetcher:
            if not _exists(fetcher, self._topic(view)):
                require_view(None, view, self.views())
            partitions = len(fetcher.layout(self._topic(view)).leaders)
        producer = self._producer(self._topic(view)) if written is None else written.producer
        producer.take_over()  # an older owner's transaction has ended when this returns
        written = self._written[view] = _Written(producer, self._require(view))
        if partitions != written.newest.partitions:
            raise RequestError(
                f"topic {self._topic(view)!r} was made with {written.newest.partitions} partitions and has "
                f"{partitions} now, so that keys have moved; drop the view and rebuild it"
            )
        return written

    def _write(
        self,
        written: "_Written",
        topic: str,
        ledger: Ledger,
        changes: Callable[[], Iterable[OutputRecord]],
        *,
        set_aside: bool = False,
    ) -> None:
        """One transaction; with `set_aside`, rows that the topic does not take become dead letters."""
        entered = LedgerRecord(written.newest.number + 1, written.newest.partitions, ledger)
        owner = ledger.next_query or ledger.reflected.query_id or ""
        while True:
            own = self._fitting(topic, changes()) if set_aside else changes()
            records = itertools.chain(own, ledger_records(topic, entered))
            try:
                written.producer.transact(records, owner, ledger.reflected.batch_id)
            except RecordTooLarge as refused:
                if not set_aside or self._dead_letters is None:
                    raise
                most_bytes = self._limits.get(refused.topic, LARGEST_RECORD_BYTES)
                self._limits[refused.topic] = smaller_limit(refused, most_bytes)
            else:
                break
        written.newest = entered

    def _fitting(self, topic: str, changes: Iterable[OutputRecord]) -> Iterator[OutputRecord]:
        """The changes as the topic takes them; the dead-letter topic is created when it is needed."""
        if self._dead_letters is None:
            yield from changes
            return
        letters, known = self._dead_letters, False
        takes, letters_take = (self._limits.get(each, LARGEST_RECORD_BYTES) for each in (topic, letters))
        for record in fitting_changes(
            changes, letters, takes=takes, letters_take=letters_take, compacted=self._compacted
        ):
            if record.topic == letters and not known:
                settings = TopicSettings(partitions=1, configs=LARGE_RECORD_CONFIGS)
                ensure_topics(self._connection, {letters: settings}, self._properties)
                known = True
            yield record

    def _records(self, view: str, batch: ViewBatch, accepted: Accepted) -> Iterator[OutputRecord]:
        topic, compacted = self._topic(view), self._compacted
        if accepted.resets:
            old, rows = self._rows(view)
            yield from rebuild_records(topic, old.schema, rows, batch, accepted.ledger, compacted=compacted)
        else:
            yield from change_records(
                topic, accepted.ledger.schema, batch, accepted.ledger, compacted=compacted
            )

    # --- reading ------------------------------------------------------------------------------

    def _ledger(self, view: str) -> Ledger:
        return self._require(view).ledger

    def _require(self, view: str) -> LedgerRecord:
        """The view's newest ledger record, including our own, which may not be readable yet."""
        newest, written = self._tail(self._topic(view)), self._written.get(view)
        if written is not None and (newest is None or newest.number < written.newest.number):
            newest = written.newest
        if newest is None or newest.ledger.schema.name != view:
            require_view(None, view, self.views())
        assert newest is not None
        return newest

    def _has_records(self, topic: str) -> bool:
        with RawFetcher(self._connection) as fetcher:
            return _exists(fetcher, topic) and fetcher.offsets(topic, EARLIEST) != fetcher.offsets(
                topic, LATEST
            )

    def _tail(self, topic: str) -> LedgerRecord | None:
        """The newest ledger record of the first partition; None if the last record is not one.

        Transaction markers take offsets, so its distance from the end is not known.
        """
        with RawFetcher(self._connection) as fetcher:
            if not _exists(fetcher, topic):
                return None
            first, end = fetcher.offsets(topic, EARLIEST)[0], fetcher.offsets(topic, LATEST)[0]
            back = _TAIL_OFFSETS
            while end > first:
                start = max(first, end - back)
                found = [pair for run in fetcher.fetch(topic, 0, start, end) for pair in _pairs(run, start)]
                if found:
                    key, value = found[-1]
                    return read_ledger_record(value) if key == LEDGER_KEY else None
                if start == first:
                    return None
                back *= 8
        return None

    def _rows(self, view: str) -> tuple[Ledger, pa.Table]:
        """The view as far as it is on the topic, including our own batches."""
        wanted = self._written[view].newest.number if view in self._written else 0
        with self._read_lock:
            fetcher = self._fetcher
            deadline = time.monotonic() + self._connection.retry_timeout_ms / 1000
            while True:
                changelog = self._read_on(view, fetcher)
                newest = changelog.ledger_record if changelog.settle() else None
                if newest is not None and newest.number >= wanted:
                    return newest.ledger, changelog.rows()
                if time.monotonic() > deadline:
                    raise RetriableError(
                        f"view {view!r}: a batch on topic {self._topic(view)!r} is incomplete; try again"
                    )
                time.sleep(_POLL_S)

    def _read_on(self, view: str, fetcher: RawFetcher) -> ChangelogRows:
        topic = self._topic(view)
        layout = fetcher.layout(topic) if view in self._followed else None
        if layout is None or self._followed[view].topic_id != layout.id:
            partitions = self._require(view).partitions
            starts = fetcher.offsets(topic, EARLIEST)
            self._followed[view] = _Followed(
                ChangelogRows(partitions),
                fetcher.layout(topic).id,
                {each: starts[each] for each in range(partitions)},
            )
        followed = self._followed[view]
        ends = fetcher.offsets(topic, LATEST)
        for partition, start in followed.next.items():
            for run in fetcher.fetch(topic, partition, start, ends[partition], topic_id=followed.topic_id):
                followed.rows.feed(partition, _pairs(run, start))
            followed.next[partition] = max(start, ends[partition])
        return followed.rows


@dataclass(slots=True)
class _Written:
    """A view that this process writes: its writer, and the newest ledger record while that is open."""

    producer: TransactionalWriter
    newest: LedgerRecord


def _exists(fetcher: RawFetcher, topic: str) -> bool:
    try:
        fetcher.layout(topic)
    except RequestError as error:
        if error.code == ErrorCode.unknown_topic_or_partition:
            return False
        raise
    return True


def _configs(*, compacted: bool) -> dict[str, str]:
    return {**({"cleanup.policy": "compact"} if compacted else KEEP_ALL), **LARGE_RECORD_CONFIGS}


def _pairs(run: memoryview, start: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    columns = decode_columns(run, start_offset=start, columns=("offset", "key", "value"))
    return zip(columns["key"].to_pylist(), columns["value"].to_pylist(), strict=True)
