"""aiokafka, its event loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError, for_code
from aiokafka.structs import OffsetAndMetadata, TopicPartition

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

_CODECS = {"none": None, "gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"}
_SET_ON_TOPIC = 1


def open_driver(bootstrap: str) -> Driver:
    return AiokafkaDriver(bootstrap)


class Loop:
    """An event loop in a thread; `run` awaits there and brings back the outcome."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        with _kafka_errors():
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


@contextmanager
def _kafka_errors() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        code = getattr(error, "errno", -1)
        raise DriverError(code if isinstance(code, int) and code > 0 else -1, repr(error)) from error


def _check(code: int, about: str) -> None:
    if code:
        raise for_code(code)(about)


class AiokafkaDriver(Driver):
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._loop = Loop()
        self._producers: dict[tuple[str, int], aiokafka.AIOKafkaProducer] = {}
        self._members = Members()
        self._admin: AIOKafkaAdminClient = self._loop.run(self._open_admin())

    async def _open_admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        return admin

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        max_request_bytes: int = 1 << 20,
    ) -> list[Sent]:
        if any(message.key is None and message.value is None for message in messages):
            raise Unsupported("aiokafka sends no record that has neither key nor value")
        return self._loop.run(self._produce(topic, messages, codec, max_request_bytes))

    async def _produce(self, topic: str, messages: Sequence[Message], codec: str, limit: int) -> list[Sent]:
        producer = await self._producer(codec, limit)
        futures = [
            await producer.send(
                topic,
                message.value,
                message.key,
                partition=message.partition,
                timestamp_ms=message.timestamp_ms,
                headers=list(message.headers) or None,
            )
            for message in messages
        ]
        places = await asyncio.gather(*futures)
        return [Sent(partition=p.partition, offset=p.offset, timestamp_ms=p.timestamp) for p in places]

    async def _producer(self, codec: str, max_request_bytes: int) -> aiokafka.AIOKafkaProducer:
        if (codec, max_request_bytes) not in self._producers:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                acks="all",
                compression_type=_CODECS[codec],
                max_request_size=max_request_bytes,
                linger_ms=20,
                request_timeout_ms=20000,
                metadata_max_age_ms=1000,
            )
            await producer.start()
            self._producers[codec, max_request_bytes] = producer
        return self._producers[codec, max_request_bytes]

    def read(
        self, topic: str, start: Mapping[int, int], count: int, *, timeout_s: float = 60
    ) -> list[Record]:
        consumer = AiokafkaConsumer(self._loop, bootstrap_servers=self._bootstrap)
        consumer.assign(topic, start)
        return read_exactly(consumer, count, timeout_s)

    def offset(self, topic: str, partition: int, at: str | int) -> Position:
        if at == "max_timestamp":
            raise Unsupported("aiokafka cannot ask for the largest timestamp")
        self.partition_count(topic)  # asking aiokafka's consumer for an unknown topic would create it
        return self._loop.run(self._offset(TopicPartition(topic, partition), at))

    async def _offset(self, place: TopicPartition, at: str | int) -> Position:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self._bootstrap)
        await consumer.start()
        try:
            if isinstance(at, str):
                ask = consumer.beginning_offsets if at == "earliest" else consumer.end_offsets
                return Position(offset=(await ask([place]))[place], timestamp_ms=-1)
            found = (await consumer.offsets_for_times({place: at}))[place]
            return (
                Position(offset=found.offset, timestamp_ms=found.timestamp)
                if found
                else Position(offset=-1, timestamp_ms=-1)
            )
        finally:
            await consumer.stop()

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(config or {}))
        found = self._loop.run(self._admin.create_topics([new]))
        with _kafka_errors():
            _check(found.topic_errors[0][1], str(found.topic_errors))

    def delete_topic(self, topic: str) -> None:
        found = self._loop.run(self._admin.delete_topics([topic]))
        with _kafka_errors():
            _check(found.topic_error_codes[0][1], topic)

    def topics(self) -> list[str]:
        return self._loop.run(self._admin.list_topics())

    def partition_count(self, topic: str) -> int:
        """From the metadata of all topics, since aiokafka creates a topic it is asked about by name."""
        for found in self._loop.run(self._admin.describe_topics()):
            if found["topic"] == topic:
                return sum(partition["leader"] >= 0 for partition in found["partitions"])
        with _kafka_errors():
            raise UnknownTopicOrPartitionError(topic)

    def config(self, topic: str) -> dict[str, str | None]:
        return {entry[0]: entry[1] for entry in self._config_entries(topic)}

    def _config_entries(self, topic: str) -> list[tuple[Any, ...]]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (found,) = self._loop.run(self._admin.describe_configs([resource]))
        code, message, _, _, entries = found.resources[0]
        with _kafka_errors():
            _check(code, message)
        return entries

    def alter_config(self, topic: str, config: Mapping[str, str]) -> None:
        """The old request replaces all overrides, so those already set are sent along."""
        overrides = {entry[0]: entry[1] for entry in self._config_entries(topic) if entry[3] == _SET_ON_TOPIC}
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {**overrides, **config})
        (found,) = self._loop.run(self._admin.alter_configs([resource]))
        with _kafka_errors():
            _check(found.resources[0][0], found.resources[0][1])

    def create_partitions(self, topic: str, total: int) -> None:
        self._loop.run(self._admin.create_partitions({topic: NewPartitions(total)}))

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        self.partition_count(topic)
        wanted = {
            TopicPartition(topic, p): RecordsToDelete(before_offset=offset) for p, offset in before.items()
        }
        found = self._loop.run(self._admin.delete_records(wanted))
        return {place.partition: low for place, low in found.items()}

    def groups(self) -> list[str]:
        return [group[0] for group in self._loop.run(self._admin.list_consumer_groups())]

    def describe_group(self, group: str) -> GroupDescription:
        (found,) = self._loop.run(self._admin.describe_consumer_groups([group]))
        described = found.to_object()["groups"][0]
        members = described["members"]
        blobs = [member["member_assignment"] for member in members if member["member_assignment"]]
        decoded = [ConsumerProtocol.ASSIGNMENT.decode(blob) for blob in blobs]
        assigned = frozenset(
            (topic, p) for each in decoded for topic, places in each.assignment for p in places
        )
        return GroupDescription(state=described["state"].lower(), members=len(members), assigned=assigned)

    def delete_group(self, group: str) -> None:
        raise Unsupported("aiokafka's admin client cannot delete groups")

    def committed(self, group: str, topic: str) -> dict[int, int]:
        found = self._loop.run(self._admin.list_consumer_group_offsets(group))
        return {p.partition: o.offset for p, o in found.items() if p.topic == topic and o.offset >= 0}

    def alter_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """With no admin call for it, as aiokafka's users do: a consumer that is assigned by hand commits."""
        consumer = AiokafkaConsumer(self._loop, bootstrap_servers=self._bootstrap, group_id=group)
        consumer.assign(topic, offsets)
        try:
            consumer.commit(topic, offsets)
        finally:
            consumer.close()

    def join(self, membership: Membership) -> int:
        if membership.protocol != "classic":
            raise Unsupported("aiokafka speaks the classic group protocol only")
        if membership.assignor not in (None, "range"):
            raise Unsupported("aiokafka has no cooperative assignor")
        if membership.allow_auto_create is False:
            raise Unsupported("aiokafka always lets the broker create topics")
        consumer = AiokafkaConsumer(
            self._loop,
            bootstrap_servers=self._bootstrap,
            group_id=membership.group,
            group_instance_id=membership.instance_id,
            session_timeout_ms=membership.session_timeout_ms,
            heartbeat_interval_ms=300,
            auto_offset_reset="earliest",
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
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
        for producer in self._producers.values():
            self._loop.run(producer.stop())
        self._loop.run(self._admin.close())


class AiokafkaConsumer(Consumer, aiokafka.ConsumerRebalanceListener):
    def __init__(self, loop: Loop, **config: Any) -> None:
        self._loop = loop
        self._consumer: aiokafka.AIOKafkaConsumer = loop.run(self._open(config))

    @staticmethod
    async def _open(config: dict[str, Any]) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(
            enable_auto_commit=False, fetch_max_wait_ms=100, metadata_max_age_ms=1000, **config
        )
        await consumer.start()
        return consumer

    def assign(self, topic: str, start: Mapping[int, int]) -> None:
        self._loop.run(self._assign({TopicPartition(topic, p): offset for p, offset in start.items()}))

    async def _assign(self, start: dict[TopicPartition, int]) -> None:
        self._consumer.assign(list(start))
        for place, offset in start.items():
            self._consumer.seek(place, offset)

    def subscribe(self, topics: Sequence[str]) -> None:
        self._loop.run(self._subscribe(list(topics)))

    async def _subscribe(self, topics: list[str]) -> None:
        self._consumer.subscribe(topics, listener=self)

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        self.rebalances += 1

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        self.revoked |= {(place.topic, place.partition) for place in revoked}

    def poll(self, timeout_s: float) -> list[Record]:
        found = self._loop.run(self._consumer.getmany(timeout_ms=int(timeout_s * 1000)))
        return [_record(record) for records in found.values() for record in records]

    def assigned(self) -> frozenset[tuple[str, int]]:
        return frozenset((place.topic, place.partition) for place in self._consumer.assignment())

    def commit(self, topic: str, offsets: Mapping[int, int]) -> None:
        wanted = {TopicPartition(topic, p): OffsetAndMetadata(offset, "") for p, offset in offsets.items()}
        self._loop.run(self._consumer.commit(wanted))

    def close(self) -> None:
        self._loop.run(self._consumer.stop())


def _record(record: Any) -> Record:
    return Record(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=tuple((name, value) for name, value in record.headers),
        timestamp_ms=record.timestamp,
        append_time=record.timestamp_type == 1,
    )
