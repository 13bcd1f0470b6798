"""Which topics exist, with their ids and where they begin and end, as hooks need it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import admin as kafka_admin

from headrace.client import Connection, admin
from headrace.client.topics import SILENT_LOGGER
from headrace.errors import HeadraceError, RequestError, RetriableError

__all__ = ["FollowedTopic", "TopicLookup"]

_kafka: Any = kafka_admin  # its types are not exported to type checkers


@dataclass(frozen=True, slots=True)
class FollowedTopic:
    """A topic's id, which changes when it is recreated, and its ends, including open transactions."""

    id: str
    ends: Mapping[int, int]


class TopicLookup:
    """Synchronous, nothing is cached. Raises RetriableError when the log does not answer."""

    def __init__(self, connection: Connection) -> None:
        self._client: Any = admin(connection, logger=SILENT_LOGGER)
        self._timeout_s = connection.request_timeout_ms / 1000

    def topics(self, names: Iterable[str]) -> dict[str, FollowedTopic]:
        """The topics that exist."""
        wanted = sorted(set(names))
        try:
            described = self._client.describe_topics(TopicCollection(wanted), request_timeout=self._timeout_s)
            found = {name: _described(done) for name, done in described.items()}
            present = {name: each for name, each in found.items() if each is not None}
            places = [
                TopicPartition(name, each.id) for name, topic in present.items() for each in topic.partitions
            ]
            ends = self._offsets(places, _kafka.OffsetSpec.latest())
        except KafkaException as error:
            raise _ours(error) from error
        return {
            name: FollowedTopic(
                str(topic.topic_id), {each.id: ends[name, each.id] for each in topic.partitions}
            )
            for name, topic in present.items()
        }

    def starts(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The current start offsets of these partitions."""
        places = [TopicPartition(topic, partition) for partition in partitions]
        try:
            found = self._offsets(places, _kafka.OffsetSpec.earliest())
        except KafkaException as error:
            raise _ours(error) from error
        return {partition: offset for (_, partition), offset in found.items()}

    def _offsets(self, places: list[TopicPartition], spec: Any) -> dict[tuple[str, int], int]:
        if not places:
            return {}
        asked = self._client.list_offsets(
            dict.fromkeys(places, spec),
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=self._timeout_s,
        )
        return {(each.topic, each.partition): done.result().offset for each, done in asked.items()}


def _described(done: Any) -> Any:
    try:
        return done.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise


_REFUSALS = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
)


def _ours(error: KafkaException) -> HeadraceError:
    cause: KafkaError = error.args[0]
    if cause.code() in _REFUSALS:
        return RequestError(f"the log refuses to describe topics: {cause.str()}", code=cause.code())
    return RetriableError(f"the log does not describe topics: {cause.str()}; try again", code=cause.code())
