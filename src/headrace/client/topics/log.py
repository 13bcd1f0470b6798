"""The log as an administrator sees it: topics, offsets, configs. Thin I/O, plain results."""

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AdminClient

from headrace.client.connect import explained
from headrace.client.topics.positions import Bounds, Position, PositionKind
from headrace.errors import RequestError

__all__ = ["ANSWER_TIMEOUT_S", "FIRST_ANSWER_TIMEOUT_S", "Log", "PartitionKey", "kafka", "storage_of"]

PartitionKey = tuple[str, int]

# The types of admin requests, which the library does not export to type checkers.
kafka: Any = kafka_admin

# A broker lists its topics in milliseconds; what does not answer speaks another protocol.
FIRST_ANSWER_TIMEOUT_S = 8.0
ANSWER_TIMEOUT_S = 20.0


class Log:
    """The log behind one bootstrap address. Nothing is cached; failures are raised as our errors.

    `timeout_s` is how long a response may take.
    """

    def __init__(self, client: AdminClient, bootstrap: str, *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self.client = client
        self.bootstrap = bootstrap
        self.timeout_s = timeout_s

    def cluster(self) -> Any:
        """Brokers and topics. Always lists all topics: asking for one by name may create it."""
        with explained("listing topics", self.bootstrap):
            return self.client.list_topics(timeout=min(FIRST_ANSWER_TIMEOUT_S, self.timeout_s))

    def topic(self, name: str) -> Any:
        """One topic's partitions; raises RequestError when there is none of that name."""
        found = self.cluster().topics.get(name)
        if found is None:
            raise RequestError(
                f"topic {name!r} does not exist at {self.bootstrap}; see `headrace topics list`, "
                f"or create it with `headrace topics create {name}`",
                code=KafkaError.UNKNOWN_TOPIC_OR_PART,
            )
        return found

    def partitions(self, topic: str, only: Iterable[int] = ()) -> list[PartitionKey]:
        """A topic's partitions in order, or those of `only`; raises RequestError if one does not exist."""
        present = sorted(self.topic(topic).partitions)
        wanted = sorted(set(only))
        if missing := [each for each in wanted if each not in present]:
            raise RequestError(
                f"topic {topic!r} has no partition {missing[0]}; it has 0 to {len(present) - 1}",
                code=KafkaError.UNKNOWN_TOPIC_OR_PART,
            )
        return [(topic, partition) for partition in wanted or present]

    def bounds(
        self, partitions: Iterable[PartitionKey], *, committed_only: bool = False
    ) -> dict[PartitionKey, Bounds]:
        """Log start and end of each; `committed_only` ends before the first open transaction."""
        listed = list(partitions)
        level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        with explained("asking for offsets", self.bootstrap):
            starts = self._ask_offsets(listed, kafka.OffsetSpec.earliest())
            ends = self._ask_offsets(listed, kafka.OffsetSpec.latest(), level)
            return {
                each: Bounds(start=starts[each].result().offset, end=ends[each].result().offset)
                for each in listed
            }

    def ends(
        self, partitions: Iterable[PartitionKey], *, committed_only: bool = False
    ) -> dict[PartitionKey, int]:
        """Log end of each; `committed_only` ends before the first open transaction."""
        level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        return self._offsets(list(partitions), kafka.OffsetSpec.latest(), level)

    def offsets_at(self, partitions: Iterable[PartitionKey], time_ms: int) -> dict[PartitionKey, int | None]:
        """The first record at or after a time, per partition; None where there is none."""
        found = self._offsets(list(partitions), kafka.OffsetSpec.for_timestamp(time_ms))
        return {each: offset if offset >= 0 else None for each, offset in found.items()}

    def place(
        self,
        partitions: Iterable[PartitionKey],
        position: Position,
        bounds: Mapping[PartitionKey, Bounds] | None = None,
    ) -> dict[PartitionKey, int]:
        """The offset of a position in each partition."""
        listed = list(partitions)
        limits = self.bounds(listed) if bounds is None else bounds
        timed = self.offsets_at(listed, position.number) if position.kind is PositionKind.TIME else {}
        return {each: position.offset_in(limits[each], timed.get(each)) for each in listed}

    def _offsets(
        self,
        partitions: list[PartitionKey],
        spec: Any,
        level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[PartitionKey, int]:
        with explained("asking for offsets", self.bootstrap):
            futures = self._ask_offsets(partitions, spec, level)
            return {each: done.result().offset for each, done in futures.items()}

    def _ask_offsets(
        self,
        partitions: list[PartitionKey],
        spec: Any,
        level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[PartitionKey, Any]:
        if not partitions:
            return {}
        asked = {TopicPartition(topic, partition): spec for topic, partition in partitions}
        futures = self.client.list_offsets(asked, isolation_level=level, request_timeout=self.timeout_s)
        return {(each.topic, each.partition): done for each, done in futures.items()}

    def topic_configs(self, topic: str) -> Mapping[str, Any]:
        """Every configuration of a topic, its own and inherited."""
        resource = kafka.ConfigResource(kafka.ConfigResource.Type.TOPIC, topic)
        with explained(f"reading the configuration of topic {topic!r}", self.bootstrap):
            futures = self.client.describe_configs([resource], request_timeout=self.timeout_s)
            entries: dict[str, Any] = futures[resource].result()
            return entries

    def many_topic_configs(self, topics: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """Every configuration of several topics; empty for one that is gone or hidden from this user."""
        kind = kafka.ConfigResource.Type.TOPIC
        resources = {kafka.ConfigResource(kind, topic): topic for topic in topics}
        if not resources:
            return {}
        with explained("reading the configuration of topics", self.bootstrap):
            futures = self.client.describe_configs(list(resources), request_timeout=self.timeout_s)
            return {resources[each]: _configs_or_none(done) for each, done in futures.items()}

    def storages(self, topics: Iterable[str]) -> dict[str, str]:
        """Where each topic is stored: disk or memory; unknown if its configuration is hidden."""
        found = self.many_topic_configs(topics)
        return {topic: storage_of(configs) if configs else "unknown" for topic, configs in found.items()}

    def broker_addresses(self) -> list[tuple[str, int]]:
        return [(broker.host, broker.port) for broker in self.cluster().brokers.values()]


def _configs_or_none(done: Any) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = done.result()
    except KafkaException as raised:
        if raised.args[0].code() not in _NOT_SHOWN:
            raise
        return {}
    return found


_NOT_SHOWN = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART)


def storage_of(configs: Mapping[str, Any]) -> str:
    """Disk or memory, from a topic's configuration."""
    entry = configs.get("headrace.storage")
    return str(entry.value) if entry is not None else "disk"
