"""The topics of entity types, and their records one after the other."""

import time
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from headrace.client import LARGE_RECORD_CONFIGS, LATEST, Connection, RawFetcher
from headrace.client.topics import KEEP_ALL, TopicSettings, ensure_topics
from headrace.errors import RetriableError
from headrace.kernels import hash_key
from headrace.records import Record, iterate_batch, lay_out, read_header
from headrace.sourcing.entity_type import EntityType
from headrace.sourcing.records import Topics

__all__ = ["create_entity_topics", "partition_of", "read_records", "records_of_key", "wait_committed_ends"]

_COMMIT_TIMEOUT_S = 30.0
_COMMIT_POLL_S = 0.005
_DAY_MS = 24 * 3600 * 1000
# Answers are kept longer than commands: they tell which commands have been carried out.
_COMMANDS = {"retention.ms": str(7 * _DAY_MS), "retention.bytes": "-1"}
_ANSWERS = {"retention.ms": str(30 * _DAY_MS), "retention.bytes": "-1"}


def create_entity_topics(connection: Connection, app: str, kinds: Iterable[EntityType]) -> None:
    """Creates the topics that are missing."""
    wanted: dict[str, TopicSettings] = {}
    for kind in kinds:
        topics = Topics.of(app, kind.name)
        for topic, configs in (
            (topics.commands, _COMMANDS),
            (topics.events, KEEP_ALL),
            (topics.answers, _ANSWERS),
            (topics.snapshots, {"cleanup.policy": "compact"}),
        ):
            wanted[topic] = TopicSettings(
                partitions=kind.partitions, configs={**configs, **LARGE_RECORD_CONFIGS}
            )
    ensure_topics(connection, wanted)


def partition_of(entity: str, partitions: int) -> int:
    """Where the records of an entity are: as Kafka's own clients have it."""
    return hash_key(entity.encode()) % partitions


def read_records(fetcher: RawFetcher, topic: str, partition: int, start: int, end: int) -> Iterator[Record]:
    """The committed records from `start` up to `end`, in order."""
    for run in fetcher.fetch(topic, partition, start, end):
        position = 0
        while position < len(run):
            header = read_header(run, position)
            yield from (each for each in iterate_batch(run, position) if start <= each.offset < end)
            position += header.size_bytes


def records_of_key(
    fetcher: RawFetcher, topic: str, partition: int, keys: Collection[bytes], start: int, end: int
) -> Iterator[Record]:
    """The committed records with one of these keys, in order; the others are passed over column by column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(list(keys), pa.binary())
    for run in fetcher.fetch(topic, partition, start, end, ahead=True):
        records = lay_out(run, start_offset=start, end_offset=end)
        rows = np.flatnonzero(
            pc.is_in(records.keys.column(), value_set=wanted).to_numpy(zero_copy_only=False)
        )
        if not len(rows):
            continue
        found = records.at(rows)
        headers = found.column("headers").to_pylist() if found.has_headers else [[]] * len(rows)
        for at in range(len(rows)):
            yield Record(
                int(found.offsets[at]),
                int(found.timestamps[at]),
                found.keys[at],
                found.values[at],
                tuple((each["key"], each["value"]) for each in headers[at]),
            )


def wait_committed_ends(fetcher: RawFetcher, topic: str) -> dict[int, int]:
    """The ends of the partitions, once all that was written before this call is committed or aborted.

    The marker of a transaction reaches its partitions one after the other, so an answer may be
    read before the events that it reports. Raises RetriableError if a transaction does not end.
    """
    written = fetcher.offsets(topic, LATEST, committed=False)
    deadline = time.monotonic() + _COMMIT_TIMEOUT_S
    while True:
        ends = fetcher.offsets(topic, LATEST)
        if all(ends[partition] >= end for partition, end in written.items()):
            return ends
        if time.monotonic() > deadline:
            raise RetriableError(
                f"{topic}: a transaction has been open for {_COMMIT_TIMEOUT_S:.0f} s; try again"
            )
        time.sleep(_COMMIT_POLL_S)
