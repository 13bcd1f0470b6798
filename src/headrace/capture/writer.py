"""The topics of a capture, and how they are written: a batch of changes and the state after it, or neither.

| topic | holds |
|---|---|
| `<name>.<schema>.<table>` | changes of a table by primary key, compacted; a tombstone after each delete |
| `<name>.schema` | the schema of each table, compacted; written before the first row that has it |
| `<name>.transaction` | the cuts: an END record for each transaction of ours |
| `<name>.state` | the state after each transaction of ours, compacted |

A transaction of the log holds whole transactions of the source. The transactional id is
that of the capture, so a second process that runs the same capture fences the first.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from headrace.capture.change import TableSchema
from headrace.capture.envelope import cut, schema_value
from headrace.capture.live_keys import LiveKeys
from headrace.capture.state import CaptureState, parse_state
from headrace.client import EARLIEST, LARGE_RECORD_CONFIGS, LATEST, Connection, RawFetcher
from headrace.client.topics import KEEP_ALL, TopicSettings, ensure_topics
from headrace.client.write import BatchProducer, NextOffsets, OutputRecord, RecordBlock
from headrace.errors import RequestError
from headrace.records import decode_columns

__all__ = [
    "Batch",
    "CaptureWriter",
    "schema_topic",
    "state_topic",
    "table_topic",
    "topic_name",
    "transaction_topic",
]

_STATE_KEY = b"state"
_MINUTE_MS = 60_000
# How long a transaction of the source may take to write: the first of these that the log allows, which is
# 15 minutes unless its `transaction_max_timeout_ms` says otherwise.
_TIMEOUTS_MS = tuple(each * _MINUTE_MS for each in (1440, 720, 360, 180, 120, 60, 30, 15, 5, 1))
_COMPACT = {"cleanup.policy": "compact"}


def topic_name(text: str) -> str:
    """A valid topic name: characters that Kafka does not allow become underscores."""
    return "".join(each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in text)


def table_topic(name: str, table: str) -> str:
    """The topic of a table, which is named `schema.table`."""
    return topic_name(f"{name}.{table}")


def schema_topic(name: str) -> str:
    return topic_name(f"{name}.schema")


def transaction_topic(name: str) -> str:
    return topic_name(f"{name}.transaction")


def state_topic(name: str) -> str:
    return topic_name(f"{name}.state")


@dataclass(slots=True, kw_only=True)
class Batch:
    """What one transaction of the log holds; `state` and counts are complete once `records` have ended."""

    state: CaptureState
    records: Iterator[OutputRecord | RecordBlock] = field(default_factory=lambda: iter(()))
    transaction_id: str = ""
    committed_us: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    changes: int = 0


class CaptureWriter:
    """Writes the batches of one capture; `open` says how far the last one came, wherever it ran."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        *,
        partitions: int = 4,
        timeouts_ms: Sequence[int] = _TIMEOUTS_MS,
    ) -> None:
        self.name = name
        self._connection = connection
        self._partitions = partitions
        self._writer = BatchProducer(connection, f"capture-{name}", timeouts_ms=timeouts_ms)
        self._topics: dict[str, str] = {}
        self._keyed: set[str] = set()
        self._table_topics: set[str] = set()
        self._event_topics: set[str] = set()

    def open(self) -> CaptureState:
        """Takes over the capture's name, and reads the state that its last owner left."""
        own = TopicSettings(partitions=1, configs=_COMPACT)
        cuts = TopicSettings(partitions=1, configs=LARGE_RECORD_CONFIGS)
        ensure_topics(
            self._connection,
            {
                state_topic(self.name): own,
                schema_topic(self.name): own,
                transaction_topic(self.name): cuts,
            },
        )
        self._writer.take_over()
        return self._last_state()

    def topic(self, table: str) -> str:
        """The topic of a table that was announced."""
        return self._topics[table]

    def is_announced(self, table: str) -> bool:
        """Whether this run captures the table; one that was taken out of the capture has no topic here."""
        return table in self._topics

    def has_keys(self, table: str) -> bool:
        """Whether records of the table have keys, and its topic is compacted."""
        return table in self._keyed

    def announce(self, schemas: Iterable[TableSchema]) -> Iterator[OutputRecord]:
        """Creates the topics of tables that are missing; the records for the schema topic."""
        known = list(schemas)
        topics = {each.table: table_topic(self.name, each.table) for each in known}
        self._require_distinct({**self._topics, **topics})
        new = {topics[each.table]: self._settings(each) for each in known if each.table not in self._topics}
        if new:
            ensure_topics(self._connection, new)
        self._topics |= topics
        self._keyed |= {each.table for each in known if each.key}
        self._table_topics |= set(topics.values())
        for each in known:
            yield OutputRecord(schema_topic(self.name), each.table.encode(), schema_value(each), partition=0)

    def ensure_event_topic(self, topic: str) -> None:
        """Creates the topic of an outbox's events, if it is missing."""
        if topic not in self._event_topics:
            settings = TopicSettings(partitions=self._partitions, configs=LARGE_RECORD_CONFIGS)
            ensure_topics(self._connection, {topic: settings})
            self._event_topics.add(topic)

    def write(self, batch: Batch) -> CaptureState:
        """Writes the batch with its cut and the state after it, in one transaction; that state."""
        written: list[CaptureState] = []

        def last(offsets: NextOffsets) -> Iterable[OutputRecord]:
            of_tables = {at: each for at, each in offsets.items() if at[0] in self._table_topics}
            state = batch.state.with_offsets(of_tables)
            written.append(state)
            if of_tables:
                key, value = cut(batch.transaction_id, batch.committed_us, batch.counts, state.offsets)
                at_ms = batch.committed_us // 1000
                yield OutputRecord(
                    transaction_topic(self.name), key, value, partition=0, timestamp_ms=at_ms or None
                )
            yield OutputRecord(state_topic(self.name), _STATE_KEY, state.to_json(), partition=0)

        self._writer.transact(batch.records, last)
        return written[0]

    def live_keys(self, table: str) -> LiveKeys:
        """The keys that the table's topic has a row of now, as what was written so far leaves it.

        That is what is committed, and, within `write`, the transaction under way. The topic has no records
        of others: whoever wrote before was fenced, and what that left open was aborted.
        """
        topic, live = self._topics[table], LiveKeys()
        self._writer.flush()
        with RawFetcher(self._connection) as fetcher, RawFetcher(self._connection, committed=False) as ours:
            starts, stable = fetcher.offsets(topic, EARLIEST), fetcher.offsets(topic, LATEST)
            ends = fetcher.offsets(topic, LATEST, committed=False)
            for partition, start in starts.items():
                committed = fetcher.fetch(topic, partition, start, stable[partition])
                tail = max(start, stable[partition])
                for run in chain(committed, ours.fetch(topic, partition, tail, ends[partition])):
                    live.apply(_newest(run))
        return live

    def close(self) -> None:
        """Aborts what is open; harmless when repeated."""
        self._writer.close()

    def _settings(self, schema: TableSchema) -> TopicSettings:
        policy = _COMPACT if schema.key else KEEP_ALL
        return TopicSettings(partitions=self._partitions, configs={**policy, **LARGE_RECORD_CONFIGS})

    def _require_distinct(self, topics: Mapping[str, str]) -> None:
        by_topic: dict[str, str] = {}
        for table, topic in topics.items():
            if by_topic.setdefault(topic, table) != table:
                raise RequestError(
                    f"tables {by_topic[topic]} and {table} would share the topic {topic}; "
                    "capture one of them under another name"
                )

    def _last_state(self) -> CaptureState:
        state, topic = CaptureState(), state_topic(self.name)
        with RawFetcher(self._connection) as fetcher:
            start, end = fetcher.offsets(topic, EARLIEST)[0], fetcher.offsets(topic, LATEST)[0]
            for run in fetcher.fetch(topic, 0, start, end):
                for value in decode_columns(run, columns=("value",))["value"].to_pylist():
                    state = parse_state(value)
        return state


def _newest(run: memoryview) -> dict[bytes, bool]:
    """Of each key in these records, whether the newest one has a row."""
    columns = decode_columns(run, columns=("key", "value"))
    there = columns["value"].is_valid().to_pylist()
    keys = columns["key"].to_pylist()
    return {key: is_there for key, is_there in zip(keys, there, strict=True) if key is not None}
