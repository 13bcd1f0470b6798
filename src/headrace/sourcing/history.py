"""What the log knows of an entity: its events, and its state now, at a version and at a time.

Reads the log alone; no serving process is needed. The state now comes from the newest snapshot
and the events after it; the past comes from all events of the entity's partition, of which the
other entities' are passed over unread.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from headrace.client import EARLIEST, LATEST, Connection, RawFetcher
from headrace.errors import RequestError
from headrace.sourcing.entity_type import EntityType
from headrace.sourcing.records import CHECKPOINT_KEY, Checkpoint, Event, Topics, read_event_record
from headrace.sourcing.sealing import FindKeys, Sealing, no_keys
from headrace.sourcing.topics import partition_of, records_of_key, wait_committed_ends

__all__ = ["History", "PastState", "Step", "list_entities", "steps_of"]


@dataclass(frozen=True, slots=True)
class PastState:
    """An entity's state after `version` events."""

    state: Any
    version: int


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a history, and the state it left."""

    event: Event
    state: Any


def steps_of(kind: EntityType, events: Iterable[Event]) -> Iterator[Step]:
    """Every event of an entity, from the first, with the state after it. Pure."""
    state = kind.initial
    for event in events:
        state = kind.evolve(state, kind.read_event(event.type, event.schema, event.data))
        yield Step(event, state)


class History:
    """The history of one entity, as the log has it when a method is called."""

    def __init__(
        self,
        connection: Connection,
        app: str,
        kind: EntityType,
        entity: str,
        find_keys: FindKeys = no_keys,
    ) -> None:
        self._sealing = Sealing(kind, find_keys)
        self._connection = connection
        self._kind = kind
        self._topics = Topics.of(app, kind.name)
        self._entity = entity

    def events(self) -> list[Event]:
        """All its events, in order; none for an entity that nothing has happened to."""
        with RawFetcher(self._connection) as fetcher:
            partition = self._partition(fetcher)
            return list(self._read(fetcher, partition, 0))

    def now(self) -> PastState:
        """Its state now."""
        with RawFetcher(self._connection) as fetcher:
            partition = self._partition(fetcher)
            found, start = self._snapshot(fetcher, partition)
            state, version = found.state, found.version
            for event in self._read(fetcher, partition, start):
                if event.version > version:
                    made = self._kind.read_event(event.type, event.schema, event.data)
                    state, version = self._kind.evolve(state, made), event.version
            return PastState(state, version)

    def at(self, *, version: int | None = None, time_ms: int | None = None) -> PastState:
        """Its state after `version` events, or after the events up to a time; now without either."""
        if version is None and time_ms is None:
            return self.now()
        last = PastState(self._kind.initial, 0)
        for step in steps_of(self._kind, self.events()):
            if version is not None and step.event.version > version:
                break
            if time_ms is not None and step.event.at_ms > time_ms:
                break
            last = PastState(step.state, step.event.version)
        if version is not None and last.version != version:
            raise RequestError(f"{self._entity!r} has no version {version}; its last is {last.version}")
        return last

    def _partition(self, fetcher: RawFetcher) -> int:
        return partition_of(self._entity, _partitions(fetcher, self._topics.events, self._kind))

    def _read(self, fetcher: RawFetcher, partition: int, start: int) -> Iterator[Event]:
        topic = self._topics.events
        first = fetcher.offsets(topic, EARLIEST)[partition]
        end = wait_committed_ends(fetcher, topic)[partition]
        keys = (self._entity.encode(),)
        for record in records_of_key(fetcher, topic, partition, keys, max(first, start), end):
            yield self._sealing.open_event(read_event_record(partition, record))

    def _snapshot(self, fetcher: RawFetcher, partition: int) -> tuple[PastState, int]:
        """The newest snapshot, and the offset of the first event that it may not have."""
        topic, fits = self._topics.snapshots, self._kind.fingerprint()
        first, end = (fetcher.offsets(topic, when)[partition] for when in (EARLIEST, LATEST))
        checkpoint, last = None, None
        keys = (self._entity.encode(), CHECKPOINT_KEY)
        for record in records_of_key(fetcher, topic, partition, keys, first, end):
            if record.key == CHECKPOINT_KEY:
                checkpoint = Checkpoint.from_value(record.value or b"")
            else:
                last = orjson.loads(record.value or b"null")
        nothing = PastState(self._kind.initial, 0)
        if checkpoint is None or checkpoint.fits != fits:
            return nothing, 0
        if last is None:
            return nothing, checkpoint.events
        if last["fits"] != fits:
            return nothing, 0
        try:
            state = self._sealing.open_state(self._entity, last["state"])
        except RequestError:
            return nothing, 0
        return PastState(self._kind.state_from_json(state), last["version"]), checkpoint.events


def _partitions(fetcher: RawFetcher, topic: str, kind: EntityType) -> int:
    """How many partitions the events have; raises RequestError if nobody has served the type yet."""
    layout = fetcher.layouts([topic]).get(topic)
    if layout is None:
        raise RequestError(
            f"this log has no {kind.name} yet: there is no topic {topic}, or you may not read it. "
            "`headrace serve` creates it"
        )
    return len(layout.leaders)


def list_entities(connection: Connection, app: str, kind: EntityType) -> dict[str, int]:
    """The entities of a type and how many events each has."""
    from headrace.records import lay_out

    topic, found = Topics.of(app, kind.name).events, Counter[str]()
    with RawFetcher(connection) as fetcher:
        _partitions(fetcher, topic, kind)
        starts, ends = fetcher.offsets(topic, EARLIEST), wait_committed_ends(fetcher, topic)
        for partition, end in ends.items():
            for run in fetcher.fetch(topic, partition, starts[partition], end, ahead=True):
                counts = (
                    lay_out(run, start_offset=starts[partition], end_offset=end).keys.column().value_counts()
                )
                for each in counts.to_pylist():
                    found[(each["values"] or b"").decode(errors="replace")] += each["counts"]
    return dict(sorted(found.items()))
