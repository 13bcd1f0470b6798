"""Views as changelogs on topics, of our log or of a Kafka.

A batch is one transaction: its changes, its ledger entry and its number as the offset
of a consumer group. Whoever reads committed records sees whole batches, in order; the
view itself is what folding the topic gives. `headrace.views.topic_records` has the
format.
"""

import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.client import EARLIEST, LATEST, Connection, RawFetcher
from headrace.errors import ConfigError, RequestError, RetriableError
from headrace.records import decode_columns
from headrace.views.batch import ViewBatch
from headrace.views.ledger import Entry, Ledger, Reflected
from headrace.views.ledgered import Ledgered
from headrace.views.numbered import NumberedProducer, OutputRecord
from headrace.views.schema import ViewSchema
from headrace.views.selecting import Condition, Order, Selection, select
from headrace.views.store import Change, Snapshot, require_view
from headrace.views.topic_fold import Fold
from headrace.views.topic_records import (
    ENTRY_KEY,
    Entered,
    change_records,
    entry_records,
    read_entry,
    rebuild_records,
)
from headrace.views.topics import TopicSettings, create_topics, delete_topic, topic_names
from headrace.wire import ErrorCode

__all__ = ["TopicStore"]

_TAIL_OFFSETS = 256
_POLL_S = 0.01


@dataclass(slots=True)
class _Followed:
    """A view that this process reads: how far, and what came of it."""

    fold: Fold
    topic_id: Any
    next: dict[int, int]


class TopicStore(Ledgered):
    """A ViewStore on topics: `name` is one view's topic; with a `*` at its end, views have one each,
    called what stands before the `*` and then the view's name.

    `compacted` keeps the newest change of each row instead of all of them. Reading folds
    what is new on the topic into memory and goes on from there: it is for views that fit
    there, and for consumers that follow the topic themselves.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        *,
        partitions: int = 1,
        compacted: bool = False,
        properties: Mapping[str, Any] | None = None,
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
        self._written: dict[str, _Written] = {}
        self._followed: dict[str, _Followed] = {}
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        self._fetcher = RawFetcher(connection)  # of whoever holds the read lock

    def prepare(self, schema: ViewSchema) -> None:
        with self._write_lock:
            topic = self._topic(schema.name)
            newest = self._tail(topic)
            if newest is not None and newest.ledger.schema.name == schema.name:
                newest.ledger.require_rows_of(schema)
                return
            if newest is not None or self._has_records(topic):
                raise RequestError(
                    f"topic {topic!r} has records that are no view {schema.name!r}; take another"
                )
            create_topics(self._connection, {topic: self._settings}, self._properties)
            with RawFetcher(self._connection) as fetcher:
                partitions = len(fetcher.layout(topic).leaders)
            first = Entered(-1, partitions, Ledger(schema=schema))
            written = self._written[schema.name] = _Written(self._producer(topic), first)
            self._write(written, topic, first.ledger, ())

    def begin(
        self, view: str, query_id: str, *, schema: ViewSchema | None = None, first_batch: int = 0
    ) -> Reflected:
        with self._write_lock:
            written = self._own(view, afresh=True)
            ledger = written.newest.ledger.begin(query_id, schema, first_batch)
            self._write(written, self._topic(view), ledger, ())
            return ledger.reflected

    def apply(self, view: str, batch: ViewBatch) -> bool:
        with self._write_lock:
            written = self._own(view)
            entry = written.newest.ledger.enter(batch)
            if entry is None:
                return False
            records = self._records(view, batch, entry)
            changed = 0 if batch.changes is None else batch.changes.num_rows
            ledger = entry.ledger.with_sequence(entry.ledger.sequence + changed)
            self._write(written, self._topic(view), ledger, records)
            return True

    def snapshot(
        self,
        view: str,
        *,
        where: Iterable[Condition] = (),
        order: Iterable[Order] = (),
        limit: int | None = None,
        offset: int = 0,
    ) -> Snapshot:
        ledger, rows = self._rows(view)
        selection = Selection.of(ledger.schema, where, order, limit, offset)
        return Snapshot(select(rows, selection), ledger.reflected)

    def changes(self, view: str, since: int = 0, limit: int = 1_000) -> list[Change]:
        del since, limit
        raise RequestError(f"the changes of view {view!r} are the topic {self._topic(view)!r}: consume it")

    def views(self) -> list[str]:
        if not self._name.endswith("*"):
            newest = self._tail(self._name)
            return [] if newest is None else [newest.ledger.schema.name]
        topics = [each for each in topic_names(self._connection) if each.startswith(self._name[:-1])]
        found = {topic: self._tail(topic) for topic in topics}
        names = [each.ledger.schema.name for each in found.values() if each is not None]
        return sorted(name for name in names if self._topic(name) in found)

    def drop(self, view: str) -> None:
        with self._write_lock, self._read_lock:
            written = self._written.pop(view, None)
            if written is not None:
                written.producer.close()
            self._followed.pop(view, None)
            if view in self.views():
                delete_topic(self._connection, self._topic(view), self._properties)

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

    def _producer(self, topic: str) -> NumberedProducer:
        return NumberedProducer(self._connection, f"view-{topic}", properties=self._properties)

    def _own(self, view: str, *, afresh: bool = False) -> "_Written":
        """The view as its owner knows it: taken over and read from the topic, unless it is ours already."""
        written = self._written.get(view)
        if written is not None and written.producer.is_open and not afresh:
            return written
        with RawFetcher(self._connection) as fetcher:
            if not _exists(fetcher, self._topic(view)):
                require_view(None, view, self.views())
            partitions = len(fetcher.layout(self._topic(view)).leaders)
        producer = self._producer(self._topic(view)) if written is None else written.producer
        producer.take_over()  # what an older owner left open has ended when this returns
        written = self._written[view] = _Written(producer, self._require(view))
        if partitions != written.newest.partitions:
            raise RequestError(
                f"topic {self._topic(view)!r} was made with {written.newest.partitions} partitions and has "
                f"{partitions} now, so that keys have moved; drop the view and rebuild it"
            )
        return written

    def _write(
        self, written: "_Written", topic: str, ledger: Ledger, changes: Iterable[OutputRecord]
    ) -> None:
        entered = Entered(written.newest.number + 1, written.newest.partitions, ledger)
        records = itertools.chain(changes, entry_records(topic, entered))
        owner = ledger.next_query or ledger.reflected.query_id or ""
        written.producer.transact(records, owner, ledger.reflected.batch_id)
        written.newest = entered

    def _records(self, view: str, batch: ViewBatch, entry: Entry) -> Iterator[OutputRecord]:
        topic, compacted = self._topic(view), self._compacted
        if entry.resets:
            old, rows = self._rows(view)
            yield from rebuild_records(topic, old.schema, rows, batch, entry.ledger, compacted=compacted)
        else:
            yield from change_records(topic, entry.ledger.schema, batch, entry.ledger, compacted=compacted)

    # --- reading ------------------------------------------------------------------------------

    def _ledger(self, view: str) -> Ledger:
        return self._require(view).ledger

    def _require(self, view: str) -> Entered:
        """The view's newest entry; our own too, which is committed and can be read in a moment."""
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

    def _tail(self, topic: str) -> Entered | None:
        """The newest entry of the first partition; None if the topic's last record is none.

        Markers of transactions take offsets, so that how far back it lies is not known.
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
                    return read_entry(value) if key == ENTRY_KEY else None
                if start == first:
                    return None
                back *= 8
        return None

    def _rows(self, view: str) -> tuple[Ledger, pa.Table]:
        """The view folded as far as it is on the topic, our own batches included."""
        wanted = self._written[view].newest.number if view in self._written else 0
        with self._read_lock:
            fetcher = self._fetcher
            deadline = time.monotonic() + self._connection.retry_timeout_ms / 1000
            while True:
                fold = self._read_on(view, fetcher)
                if fold.settle() and fold.entered is not None and fold.entered.number >= wanted:
                    return fold.entered.ledger, fold.rows()
                if time.monotonic() > deadline:
                    raise RetriableError(
                        f"view {view!r}: a batch on topic {self._topic(view)!r} is not whole yet; try again"
                    )
                time.sleep(_POLL_S)

    def _read_on(self, view: str, fetcher: RawFetcher) -> Fold:
        topic = self._topic(view)
        layout = fetcher.layout(topic) if view in self._followed else None
        if layout is None or self._followed[view].topic_id != layout.id:
            partitions = self._require(view).partitions
            starts = fetcher.offsets(topic, EARLIEST)
            self._followed[view] = _Followed(
                Fold(partitions), fetcher.layout(topic).id, {each: starts[each] for each in range(partitions)}
            )
        followed = self._followed[view]
        ends = fetcher.offsets(topic, LATEST)
        for partition, start in followed.next.items():
            for run in fetcher.fetch(topic, partition, start, ends[partition], topic_id=followed.topic_id):
                followed.fold.feed(partition, _pairs(run, start))
            followed.next[partition] = max(start, ends[partition])
        return followed.fold


@dataclass(slots=True)
class _Written:
    """A view that this process writes: its producer, and the newest entry as long as that is open."""

    producer: NumberedProducer
    newest: Entered


def _exists(fetcher: RawFetcher, topic: str) -> bool:
    try:
        fetcher.layout(topic)
    except RequestError as error:
        if error.code == ErrorCode.unknown_topic_or_partition:
            return False
        raise
    return True


def _configs(*, compacted: bool) -> dict[str, str]:
    return {"cleanup.policy": "compact"} if compacted else {"retention.ms": "-1", "retention.bytes": "-1"}


def _pairs(run: memoryview, start: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    columns = decode_columns(run, start_offset=start, columns=("offset", "key", "value"))
    return zip(columns["key"].to_pylist(), columns["value"].to_pylist(), strict=True)
