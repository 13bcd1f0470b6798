"""confluent-kafka, and so librdkafka."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import confluent_kafka as ck
from confluent_kafka import admin as cka

from clients.driver import (
    Driver,
    DriverError,
    GroupDescription,
    Membership,
    MemberState,
    Message,
    Position,
    Record,
    Sent,
    Unsupported,
)
from clients.polling import Consumer, Members, read_exactly

_UNKNOWN_TOPIC = 3
# With the default strategy, librdkafka 2.16 keeps asking a handle of the coordinator that it has
# itself discarded once a cluster of one node was gone for a moment (seen on Kafka 4.3 too).
_RECONNECT = {"reconnect.backoff.max.ms": 500, "metadata.recovery.strategy": "none"}
_LOCAL_UNKNOWN = (ck.KafkaError._UNKNOWN_TOPIC, ck.KafkaError._UNKNOWN_PARTITION, ck.KafkaError._NOENT)


def open_driver(bootstrap: str) -> Driver:
    return LibrdkafkaDriver(bootstrap)


def _error(error: ck.KafkaError) -> DriverError:
    code = _UNKNOWN_TOPIC if error.code() in _LOCAL_UNKNOWN else error.code()
    return DriverError(code if code > 0 else -1, f"{error.name()}: {error.str()}")


def _wait(outcome: Future[Any]) -> Any:
    try:
        return outcome.result(30)
    except ck.KafkaException as error:
        raise _error(error.args[0]) from error


class LibrdkafkaDriver(Driver):
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = cka.AdminClient({"bootstrap.servers": bootstrap, **_RECONNECT})
        self._producers: dict[tuple[str, int], ck.Producer] = {}
        self._members = Members()

    def _producer(self, codec: str, max_request_bytes: int) -> ck.Producer:
        if (codec, max_request_bytes) not in self._producers:
            self._producers[codec, max_request_bytes] = ck.Producer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "acks": "all",
                    "compression.type": codec,
                    "message.max.bytes": max_request_bytes,
                    "linger.ms": 20,
                    "message.timeout.ms": 40000,
                    "topic.metadata.refresh.interval.ms": 1000,
                    # librdkafka's own default is CRC32; this is what every other client does.
                    "partitioner": "murmur2_random",
                    **_RECONNECT,
                }
            )
        return self._producers[codec, max_request_bytes]

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        max_request_bytes: int = 1 << 20,
    ) -> list[Sent]:
        producer = self._producer(codec, max_request_bytes)
        outcomes: list[Sent | ck.KafkaError | None] = [None] * len(messages)
        for index, message in enumerate(messages):
            try:
                self._send(producer, topic, message, index, outcomes)
            except ck.KafkaException as error:
                raise _error(error.args[0]) from error
        producer.flush(30)
        return [self._sent(outcome) for outcome in outcomes]

    @staticmethod
    def _send(producer: ck.Producer, topic: str, message: Message, index: int, outcomes: list[Any]) -> None:
        def delivered(error: ck.KafkaError | None, sent: ck.Message) -> None:
            place = Sent(partition=sent.partition(), offset=sent.offset(), timestamp_ms=sent.timestamp()[1])
            outcomes[index] = error or place

        optional: dict[str, Any] = {}
        if message.partition is not None:
            optional["partition"] = message.partition
        if message.timestamp_ms is not None:
            optional["timestamp"] = message.timestamp_ms
        headers = list(message.headers) or None
        producer.produce(
            topic, message.value, message.key, headers=headers, on_delivery=delivered, **optional
        )

    @staticmethod
    def _sent(outcome: Sent | ck.KafkaError | None) -> Sent:
        if isinstance(outcome, ck.KafkaError):
            raise _error(outcome)
        if outcome is None:
            raise DriverError(-1, "no delivery report within 30 s")
        return outcome

    def read(
        self, topic: str, start: Mapping[int, int], count: int, *, timeout_s: float = 60
    ) -> list[Record]:
        consumer = LibrdkafkaConsumer({"bootstrap.servers": self._bootstrap, "group.id": "reader"})
        consumer.assign(topic, start)
        return read_exactly(consumer, count, timeout_s)

    def offset(self, topic: str, partition: int, at: str | int) -> Position:
        named = {"earliest": cka.OffsetSpec.earliest, "latest": cka.OffsetSpec.latest}
        named["max_timestamp"] = cka.OffsetSpec.max_timestamp
        spec = named[at]() if isinstance(at, str) else cka.OffsetSpec.for_timestamp(at)
        place = ck.TopicPartition(topic, partition)
        found = _wait(self._admin.list_offsets({place: spec})[place])
        return Position(offset=found.offset, timestamp_ms=found.timestamp)

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        new = cka.NewTopic(topic, num_partitions=partitions, config=dict(config or {}))
        _wait(self._admin.create_topics([new])[topic])

    def delete_topic(self, topic: str) -> None:
        _wait(self._admin.delete_topics([topic])[topic])

    def topics(self) -> list[str]:
        return list(self._admin.list_topics(timeout=20).topics)

    def partition_count(self, topic: str) -> int:
        found = _wait(self._admin.describe_topics(ck.TopicCollection([topic]))[topic])
        return sum(partition.leader is not None for partition in found.partitions)

    def config(self, topic: str) -> dict[str, str | None]:
        resource = cka.ConfigResource(cka.ResourceType.TOPIC, topic)
        found = _wait(self._admin.describe_configs([resource])[resource])
        return {name: entry.value for name, entry in found.items()}

    def alter_config(self, topic: str, config: Mapping[str, str]) -> None:
        entries = [
            cka.ConfigEntry(name, value, incremental_operation=cka.AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        resource = cka.ConfigResource(cka.ResourceType.TOPIC, topic, incremental_configs=entries)
        _wait(self._admin.incremental_alter_configs([resource])[resource])

    def create_partitions(self, topic: str, total: int) -> None:
        _wait(self._admin.create_partitions([cka.NewPartitions(topic, total)])[topic])

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        places = [ck.TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        outcomes = self._admin.delete_records(places)
        return {place.partition: _wait(outcome).low_watermark for place, outcome in outcomes.items()}

    def groups(self) -> list[str]:
        return [group.group_id for group in _wait(self._admin.list_consumer_groups()).valid]

    def describe_group(self, group: str) -> GroupDescription:
        found = _wait(self._admin.describe_consumer_groups([group])[group])
        places = [place for member in found.members for place in member.assignment.topic_partitions]
        assigned = frozenset((place.topic, place.partition) for place in places)
        return GroupDescription(state=found.state.name.lower(), members=len(found.members), assigned=assigned)

    def delete_group(self, group: str) -> None:
        _wait(self._admin.delete_consumer_groups([group])[group])

    def committed(self, group: str, topic: str) -> dict[int, int]:
        request = ck.ConsumerGroupTopicPartitions(group)
        found = _wait(self._admin.list_consumer_group_offsets([request])[group])
        return {p.partition: p.offset for p in found.topic_partitions if p.topic == topic and p.offset >= 0}

    def alter_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        places = [ck.TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        request = ck.ConsumerGroupTopicPartitions(group, places)
        found = _wait(self._admin.alter_consumer_group_offsets([request])[group])
        for place in found.topic_partitions:
            if place.error:
                raise _error(place.error)

    def join(self, membership: Membership) -> int:
        if membership.allow_auto_create:
            raise Unsupported("a subscription of librdkafka creates no topic, on Kafka neither")
        config: dict[str, Any] = {"bootstrap.servers": self._bootstrap, "group.id": membership.group}
        config["auto.offset.reset"] = "earliest"
        config["group.protocol"] = membership.protocol
        if membership.protocol == "classic":
            config["session.timeout.ms"] = membership.session_timeout_ms
            config["heartbeat.interval.ms"] = 300
            config["partition.assignment.strategy"] = membership.assignor or "range"
        if membership.instance_id is not None:
            config["group.instance.id"] = membership.instance_id
        if membership.allow_auto_create is not None:
            config["allow.auto.create.topics"] = membership.allow_auto_create
        consumer = LibrdkafkaConsumer(config)
        consumer.subscribe(membership.topics)
        return self._members.open(consumer)

    def member(self, handle: int) -> MemberState:
        return self._members[handle].state()

    def commit(self, handle: int, topic: str, offsets: Mapping[int, int]) -> None:
        self._members[handle].commit(topic, offsets)

    def leave(self, handle: int) -> None:
        self._members.close(handle)

    def close(self) -> None:
        self._members.close_all()


class LibrdkafkaConsumer(Consumer):
    def __init__(self, config: dict[str, Any]) -> None:
        quick = {
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        self._consumer = ck.Consumer({**_RECONNECT, **quick, **config})

    def assign(self, topic: str, start: Mapping[int, int]) -> None:
        self._consumer.assign([ck.TopicPartition(topic, p, offset) for p, offset in start.items()])

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self.rebalances += 1

    def _revoked(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self.revoked |= {(place.topic, place.partition) for place in partitions}

    def poll(self, timeout_s: float) -> list[Record]:
        messages = self._consumer.consume(500, timeout_s)
        for message in messages:
            if message.error():
                raise _error(message.error())
        return [_record(message) for message in messages]

    def assigned(self) -> frozenset[tuple[str, int]]:
        return frozenset((place.topic, place.partition) for place in self._consumer.assignment())

    def commit(self, topic: str, offsets: Mapping[int, int]) -> None:
        places = [ck.TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except ck.KafkaException as error:
            raise _error(error.args[0]) from error

    def close(self) -> None:
        self._consumer.close()


def _record(message: ck.Message) -> Record:
    kind, timestamp_ms = message.timestamp()
    return Record(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
        timestamp_ms=timestamp_ms,
        append_time=kind == ck.TIMESTAMP_LOG_APPEND_TIME,
    )
