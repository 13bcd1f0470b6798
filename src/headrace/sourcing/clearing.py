"""What the log has about a subject in the clear: personal fields that were written unsealed.

There is none if fields were marked from the start and commands come from Python or over HTTP. A command
that another client wrote in the clear was rejected, and its record is deleted with those before it, all of
which were carried out. Events from before a field was marked cannot be removed from the log; they are listed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from confluent_kafka import KafkaException, TopicPartition

from headrace.client import EARLIEST, LATEST, Connection, GroupOffsets, RawFetcher, admin
from headrace.client.connect import from_kafka
from headrace.client.topics import SILENT_LOGGER
from headrace.personal import Cleared, is_sealed
from headrace.records import COMMAND_PREFIX, EVENT_PREFIX, Record, read_headers
from headrace.sourcing.records import Topics
from headrace.sourcing.topics import partition_of, read_records, records_of_key

__all__ = ["clear_records", "is_in_clear"]

_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class _Place:
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


def clear_records(
    connection: Connection, app: str, entity_types: Iterable[Mapping[str, Any]], group: str, subject: str
) -> Cleared:
    """Deletes commands that have something of this subject in the clear, and names events that do.

    `entity_types` are as `EntityType.describe` describes them; `group` is that of their servers.
    """
    steps: list[str] = []
    left: list[str] = []
    with RawFetcher(connection) as fetcher:
        for each in entity_types:
            commands = list(_commands_in_clear(fetcher, app, each, subject))
            done = _delete(connection, group, commands)
            steps += [f"command in the clear at {place}: deleted" for place in commands if place in done]
            left += [f"command in the clear at {place}" for place in commands if place not in done]
            left += [
                f"event in the clear at {place}" for place in _events_in_clear(fetcher, app, each, subject)
            ]
    if not (steps or left):
        steps = ["no command or event has personal fields in the clear"]
    return Cleared((*steps, _not_rewritten(connection)), tuple(left))


def _not_rewritten(connection: Connection) -> str:
    return (
        f"no segment of the log at {connection.bootstrap_servers} was rewritten: it keeps its records, and "
        "destroying the keys is what makes the sealed values in them unreadable"
    )


def is_in_clear(data: Any, fields: Iterable[str], subject_field: str | None, subject: str) -> bool:
    """Whether these fields have values of this subject that are not sealed; the entity is the subject
    where no field names it."""
    if not isinstance(data, dict):
        return False
    if subject_field is not None and str(data.get(subject_field)) != subject:
        return False
    return any(data.get(each) is not None and not is_sealed(data[each]) for each in fields)


def _commands_in_clear(
    fetcher: RawFetcher, app: str, kind: Mapping[str, Any], subject: str
) -> Iterator[_Place]:
    topic = Topics.of(app, kind["type"]).commands
    personal = {name: each["personal"] for name, each in kind["commands"].items()}
    for place, record in _records(fetcher, topic, kind["subject"], subject) if any(personal.values()) else ():
        name = read_headers(record.headers, COMMAND_PREFIX).get("name", "")
        if is_in_clear(_json(record), personal.get(name, ()), kind["subject"], subject):
            yield place


def _events_in_clear(
    fetcher: RawFetcher, app: str, kind: Mapping[str, Any], subject: str
) -> Iterator[_Place]:
    topic = Topics.of(app, kind["type"]).events
    for place, record in _records(fetcher, topic, kind["subject"], subject) if kind["personal"] else ():
        name = read_headers(record.headers, EVENT_PREFIX).get("type", "")
        value = _json(record)
        data = value.get("data") if isinstance(value, dict) else None
        if is_in_clear(data, kind["personal"].get(name, ()), kind["subject"], subject):
            yield place


def _records(
    fetcher: RawFetcher, topic: str, subject_field: str | None, subject: str
) -> Iterator[tuple[_Place, Record]]:
    """The records that may be about a subject: its entity's, or all where a field names it."""
    starts, ends = fetcher.offsets(topic, EARLIEST), fetcher.offsets(topic, LATEST)
    own = partition_of(subject, len(ends))
    for partition, end in ends.items():
        if subject_field is not None:
            found = read_records(fetcher, topic, partition, starts[partition], end)
        elif partition == own:
            found = records_of_key(fetcher, topic, partition, (subject.encode(),), starts[partition], end)
        else:
            continue
        for record in found:
            yield _Place(topic, partition, record.offset), record


def _delete(connection: Connection, group: str, places: list[_Place]) -> set[_Place]:
    """Deletes up to these records, as far as everything before was carried out; those that are gone."""
    if not places:
        return set()
    last = {
        (each.topic, each.partition): each.offset for each in sorted(places, key=lambda each: each.offset)
    }
    with GroupOffsets(connection, group) as offsets:
        topic = places[0].topic
        carried = {
            partition: each.offset for partition, each in offsets.fetch(topic, [p for _, p in last]).items()
        }
    asked = [
        TopicPartition(topic, partition, offset + 1)
        for (topic, partition), offset in last.items()
        if carried.get(partition, 0) > offset
    ]
    if not asked:
        return set()
    client = admin(connection, logger=SILENT_LOGGER)  # its futures end with it
    for each, future in client.delete_records(asked, request_timeout=_TIMEOUT_S).items():
        try:
            future.result(2 * _TIMEOUT_S)
        except KafkaException as raised:
            doing = f"deleting records of {each.topic}:{each.partition}"
            raise from_kafka(raised.args[0], doing, connection.bootstrap_servers) from raised
    gone = {(each.topic, each.partition): each.offset for each in asked}
    return {each for each in places if each.offset < gone.get((each.topic, each.partition), 0)}


def _json(record: Record) -> Any:
    try:
        return orjson.loads(record.value or b"null")
    except ValueError:
        return None
