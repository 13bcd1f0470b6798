"""The rows of a projection made from the log, up to given offsets."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from headrace.client import EARLIEST, Connection, RawFetcher
from headrace.errors import RequestError
from headrace.records import format_source
from headrace.sourcing.defects import told
from headrace.sourcing.projections.projection import Projection
from headrace.sourcing.projections.rows import Key, ProjectedRows
from headrace.sourcing.records import Event, Topics, read_event_record
from headrace.sourcing.topics import read_records

__all__ = ["failure_at", "replay_events", "replayed_projection", "traced_projection"]

_SIGN_OF_LIFE = 1_000


def replayed_projection(
    projection: Projection, app: str, connection: Connection, ends: Mapping[int, int]
) -> pa.Table:
    """The rows after all events before `ends`; raises RequestError if the log does not have them all."""
    rows = ProjectedRows(projection)
    with RawFetcher(connection) as fetcher:
        replay_events(fetcher, projection, app, lambda event, _: rows.apply(event), {}, ends)
    return rows.table()


def traced_projection(
    projection: Projection, app: str, connection: Connection, ends: Mapping[int, int]
) -> tuple[pa.Table, list[list[str]]]:
    """The same rows, and for each of them the places of the events that it is made of.

    Of a row that went and came again, those since then.
    """
    rows, behind = ProjectedRows(projection), dict[Key, list[str]]()

    def apply(event: Event, place: str) -> None:
        key = rows.apply(event)
        if key is not None and key in rows:
            behind.setdefault(key, []).append(place)
        elif key is not None:
            behind.pop(key, None)

    with RawFetcher(connection) as fetcher:
        replay_events(fetcher, projection, app, apply, {}, ends)
    return rows.table(), [behind[key] for key in rows]


def replay_events(
    fetcher: RawFetcher,
    projection: Projection,
    app: str,
    apply: Callable[[Event, str], object],
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    *,
    keep_on: Callable[[], bool] = lambda: True,
) -> bool:
    """Applies the events between the offsets, each with its place; False if `keep_on`, asked now and then,
    says to give up.

    Raises RequestError for an event that cannot be applied, and where events are gone.
    """
    topic = Topics.of(app, projection.kind.name).events
    first = fetcher.offsets(topic, EARLIEST)
    for partition, end in ends.items():
        start = starts.get(partition, 0)
        if start < end and first[partition] > start:
            raise RequestError(
                f"{topic}-{partition} begins at {first[partition]}: the events before it are gone, so "
                f"{projection.name} cannot be made from the log"
            )
        for number, record in enumerate(read_records(fetcher, topic, partition, start, end)):
            if number % _SIGN_OF_LIFE == 0 and not keep_on():
                return False
            event = read_event_record(partition, record)
            try:
                apply(event, format_source(topic, partition, record.offset))
            except Exception as error:
                raise RequestError(failure_at(projection, topic, partition, record.offset, error)) from error
    return True


def failure_at(projection: Projection, topic: str, partition: int, offset: int, error: Exception) -> str:
    """Which event a projection fails on, and why."""
    reason = told(error, is_personal=projection.kind.is_personal)
    return f"projection {projection.name} failed on the event at {topic}:{partition}:{offset}: {reason}"
