"""What the log knows about an entity: its events, and its state now, at a version and at a time.

Reads the log alone; no serving process is needed. The state now comes from the newest snapshot
and the events after it; past states come from all events of the entity's partition; those of
other entities are skipped unread.
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

__all__ = ["History", "PastState", "Step", "list_entities", "read_events", "state_changes", "steps_of"]


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
    """The history of one entity, as the log has it when a method is called.

    With `sealed`, events have their personal fields as they are on the log, and states are made as if
    their subjects had been forgotten.
    """

    def __init__(
        self,
        connection: Connection,
        app: str,
        kind: EntityType,
        entity: str,
        find_keys: FindKeys = no_keys,
        *,
        sealed: bool = False,
    ) -> None:
        self._sealing = Sealing(kind, find_keys, is_withheld=sealed)
        self._are_events_sealed = sealed
        self._connection = connection
        self._kind = kind
        self._topics = Topics.of(app, kind.name)
        self._entity = entity

    def events(self) -> list[Event]:
        """All its events, in order; none for an entity that nothing has happened to."""
        shown, _ = self._all()
        return shown

    def steps(self) -> Iterator[Step]:
        """The same, each with the state that it left."""
        shown, opened = self._all()
        for event, step in zip(shown, steps_of(self._kind, opened), strict=True):
            yield Step(event, step.state)

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
        for step in self.steps():
            if version is not None and step.event.version > version:
                break
            if time_ms is not None and step.event.at_ms > time_ms:
                break
            last = PastState(step.state, step.event.version)
        if version is not None and last.version != version:
            raise RequestError(f"{self._entity!r} has no version {version}; its last is {last.version}")
        return last

    def _all(self) -> tuple[list[Event], list[Event]]:
        """All events, as they are shown and as states are made from them."""
        found = read_events(self._connection, self._topics, self._kind.name, self._entity)
        opened = [self._sealing.open_event(each) for each in found]
        return found if self._are_events_sealed else opened, opened

    def _partition(self, fetcher: RawFetcher) -> int:
        return partition_of(self._entity, _partitions(fetcher, self._topics.events, self._kind.name))

    def _read(self, fetcher: RawFetcher, partition: int, start: int) -> Iterator[Event]:
        for event in _events_from(fetcher, self._topics.events, self._entity, partition, start):
            yield self._sealing.open_event(event)

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


def read_events(connection: Connection, topics: Topics, type_name: str, entity: str) -> list[Event]:
    """All events of an entity as they are on the log, personal fields sealed; needs no code of its type."""
    with RawFetcher(connection) as fetcher:
        partition = partition_of(entity, _partitions(fetcher, topics.events, type_name))
        return list(_events_from(fetcher, topics.events, entity, partition, 0))


def _events_from(fetcher: RawFetcher, topic: str, entity: str, partition: int, start: int) -> Iterator[Event]:
    first = fetcher.offsets(topic, EARLIEST)[partition]
    end = wait_committed_ends(fetcher, topic)[partition]
    for record in records_of_key(fetcher, topic, partition, (entity.encode(),), max(first, start), end):
        yield read_event_record(partition, record)


def state_changes(before: Any, after: Any) -> dict[str, tuple[Any, Any]]:
    """The fields of a state as JSON that differ, with both values; nested ones by their path. Pure."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return {} if before == after else {"": (before, after)}
    found: dict[str, tuple[Any, Any]] = {}
    for name in dict.fromkeys((*before, *after)):
        for path, pair in state_changes(before.get(name), after.get(name)).items():
            found[f"{name}.{path}" if path else name] = pair
    return found


def _partitions(fetcher: RawFetcher, topic: str, kind: str) -> int:
    """How many partitions the events have; raises RequestError if nobody has served the type yet."""
    layout = fetcher.layouts([topic]).get(topic)
    if layout is None:
        raise RequestError(
            f"this log has no {kind} yet: there is no topic {topic}, or you may not read it. "
            "`headrace serve` creates it"
        )
    return len(layout.leaders)


def list_entities(connection: Connection, app: str, kind: str) -> dict[str, int]:
    """The entities of a type and how many events each has."""
    from headrace.records import lay_out

    topic, found = Topics.of(app, kind).events, Counter[str]()
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
