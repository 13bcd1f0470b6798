"""A partition as the log has it: snapshots, the events after them, and the last answers."""

from typing import Any

import orjson

from headrace.client import EARLIEST, Connection, RawFetcher
from headrace.errors import RequestError
from headrace.records import Record
from headrace.sourcing.entity_type import EntityType
from headrace.sourcing.partition import EntityPartition
from headrace.sourcing.records import CHECKPOINT_KEY, Answer, Checkpoint, Topics, read_event_record
from headrace.sourcing.sealing import FindKeys, no_keys
from headrace.sourcing.topics import read_records, wait_committed_ends

__all__ = ["load_snapshots", "restore"]


def restore(
    connection: Connection, app: str, kind: EntityType, partition: int, find_keys: FindKeys = no_keys
) -> EntityPartition:
    """Everything an owner must know; to be read after the last owner is fenced."""
    topics = Topics.of(app, kind.name)
    with RawFetcher(connection) as fetcher:
        found = EntityPartition(kind, topics, partition, find_keys=find_keys)
        found.sealing.remember_forgotten()
        start = load_snapshots(fetcher, found)
        first = fetcher.offsets(topics.events, EARLIEST)[partition]
        ends = wait_committed_ends(fetcher, topics.events)
        end = ends[partition]
        for record in read_records(fetcher, topics.events, partition, max(start, first), end):
            _apply(found, record)
        found.next_event = end
        found.partitions = len(ends)
        _load_answers(fetcher, found)
    return found


def _apply(into: EntityPartition, record: Record) -> None:
    event = read_event_record(into.partition, record)
    try:
        into.apply(event)
    except Exception as error:  # of the application's own functions, too
        reason = type(error).__name__ if into.kind.is_personal else str(error)
        raise RequestError(
            f"{into.topics.events}-{into.partition}, offset {record.offset}: event {event.version} of "
            f"{event.entity!r} ({event.type}) cannot be applied: {reason}; if its type has changed, declare "
            "an upcaster for it"
        ) from error


def load_snapshots(fetcher: RawFetcher, into: EntityPartition) -> int:
    """Loads the snapshots, and returns the offset of the first event after them.

    They are ignored, all of them, if one was written by code that does not fit: the events are
    the truth, and are all read then.
    """
    checkpoint, snapshots = _read_snapshots(fetcher, into)
    fits = into.kind.fingerprint()
    if checkpoint is None:
        return 0
    into.next_command = checkpoint.commands
    try:
        if checkpoint.fits != fits or any(each["fits"] != fits for each in snapshots.values()):
            return 0
        for entity, each in snapshots.items():
            into.load_snapshot(entity, each["version"], each["state"])
    except RequestError:
        into.entities.clear()
        return 0
    return checkpoint.events


def _read_snapshots(
    fetcher: RawFetcher, of: EntityPartition
) -> tuple[Checkpoint | None, dict[str, dict[str, Any]]]:
    topic, partition = of.topics.snapshots, of.partition
    start = fetcher.offsets(topic, EARLIEST)[partition]
    end = wait_committed_ends(fetcher, topic)[partition]
    checkpoint, last = None, {}
    for record in read_records(fetcher, topic, partition, start, end):
        if record.key == CHECKPOINT_KEY and record.value is not None:
            checkpoint = Checkpoint.from_value(record.value)
        elif record.key is not None and record.value is not None:
            last[record.key.decode()] = record.value
    return checkpoint, {entity: orjson.loads(value) for entity, value in last.items()}


def _load_answers(fetcher: RawFetcher, into: EntityPartition) -> None:
    """The last answers, the oldest of them first.

    Not every offset is an answer: some are the ends of transactions, others were aborted. So it looks
    further and further back until there are enough.
    """
    topic, partition, most = into.topics.answers, into.partition, into.kind.remember
    first = fetcher.offsets(topic, EARLIEST)[partition]
    start = wait_committed_ends(fetcher, topic)[partition]
    found: list[bytes] = []
    while start > first and len(found) < most:
        end, start = start, max(first, start - 2 * (most - len(found)) - 1)
        records = read_records(fetcher, topic, partition, start, end)
        found = [each.value for each in records if each.value is not None] + found
    for value in found[-most:] if most else ():
        into.remember(Answer.from_value(value))
