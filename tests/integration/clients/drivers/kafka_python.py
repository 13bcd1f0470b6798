"""kafka-python 3."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import kafka
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError, NoError, for_code
from kafka.protocol.consumer import OffsetSpec
from kafka.structs import MemberState as GroupState
from kafka.structs import OffsetAndMetadata, TopicPartition

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

_ASSIGNORS = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
_RECONNECT = {"reconnect_backoff_max_ms": 500}
_CODECS = {"none": None, "gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"}


def open_driver(bootstrap: str) -> Driver:
    return KafkaPythonDriver(bootstrap)


@contextmanager
def _kafka_errors() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        code = getattr(error, "errno", -1)
        raise DriverError(code if isinstance(code, int) and code > 0 else -1, repr(error)) from error


class KafkaPythonDriver(Driver):
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap, **_RECONNECT)
        self._producers: dict[tuple[str, int], kafka.KafkaProducer] = {}
        self._members = Members()

    def _producer(self, codec: str, max_request_bytes: int) -> kafka.KafkaProducer:
        if (codec, max_request_bytes) not in self._producers:
            self._producers[codec, max_request_bytes] = kafka.KafkaProducer(
                bootstrap_servers=self._bootstrap,
                acks="all",
                compression_type=_CODECS[codec],
                max_request_size=max_request_bytes,
                linger_ms=20,
                delivery_timeout_ms=40000,
                request_timeout_ms=15000,
                max_block_ms=20000,
                metadata_max_age_ms=1000,
                **_RECONNECT,
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
        if any(message.key is None and message.value is None for message in messages):
            raise Unsupported("kafka-python sends no record that has neither key nor value")
        if any(value is None for message in messages for _, value in message.headers):
            raise Unsupported("kafka-python refuses to send a header without a value")
        producer = self._producer(codec, max_request_bytes)
        try:
            with _kafka_errors():
                futures = [self._send(producer, topic, message) for message in messages]
                producer.flush(30)
                places = [future.get(30) for future in futures]
        except DriverError:
            # An idempotent producer of this client refuses everything after its first refusal.
            self._producers.pop((codec, max_request_bytes)).close(0)
            raise
        return [Sent(partition=p.partition, offset=p.offset, timestamp_ms=p.timestamp) for p in places]

    @staticmethod
    def _send(producer: kafka.KafkaProducer, topic: str, message: Message) -> Any:
        return producer.send(
            topic,
            message.value,
            message.key,
            headers=list(message.headers),
            partition=message.partition,
            timestamp_ms=message.timestamp_ms,
        )

    def read(
        self, topic: str, start: Mapping[int, int], count: int, *, timeout_s: float = 60
    ) -> list[Record]:
        consumer = KafkaPythonConsumer(bootstrap_servers=self._bootstrap)
        consumer.assign(topic, start)
        return read_exactly(consumer, count, timeout_s)

    def offset(self, topic: str, partition: int, at: str | int) -> Position:
        named = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}
        named["max_timestamp"] = OffsetSpec.MAX_TIMESTAMP
        place = TopicPartition(topic, partition)
        with _kafka_errors():
            found = self._admin.list_partition_offsets({place: named[at] if isinstance(at, str) else at})[
                place
            ]
        return Position(offset=found.offset, timestamp_ms=found.timestamp)

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        with _kafka_errors():
            self._admin.create_topics({topic: {"num_partitions": partitions, "configs": dict(config or {})}})

    def delete_topic(self, topic: str) -> None:
        with _kafka_errors():
            self._admin.delete_topics([topic])

    def topics(self) -> list[str]:
        with _kafka_errors():
            return self._admin.list_topics()

    def partition_count(self, topic: str) -> int:
        with _kafka_errors():
            (found,) = self._admin.describe_topics([topic])
            if found["error_code"]:
                raise for_code(found["error_code"])(topic)
        return sum(partition["leader_id"] >= 0 for partition in found["partitions"])

    def config(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        with _kafka_errors():
            found = self._admin.describe_configs([resource], config_filter="all")["topic"][topic]
        if not found:
            raise Unsupported("kafka-python drops the error code of describe-configs")
        return {name: entry["value"] for name, entry in found.items()}

    def alter_config(self, topic: str, config: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(config))
        with _kafka_errors():
            found = self._admin.alter_configs([resource])["topic"][topic]
        if found not in (None, "OK", NoError):
            raise DriverError(getattr(found, "errno", -1), str(found))

    def create_partitions(self, topic: str, total: int) -> None:
        with _kafka_errors():
            self._admin.create_partitions({topic: total})

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        with _kafka_errors():
            found = self._admin.delete_records(
                {TopicPartition(topic, p): offset for p, offset in before.items()}
            )
        return {place.partition: answer["low_watermark"] for place, answer in found.items()}

    def groups(self) -> list[str]:
        with _kafka_errors():
            return [group["group_id"] for group in self._admin.list_groups()]

    def describe_group(self, group: str) -> GroupDescription:
        with _kafka_errors():
            found = self._admin.describe_groups([group])[group]
        members = found["members"]
        assignments = [member["member_assignment"] or {} for member in members]
        topics = [topic for assignment in assignments for topic in assignment.get("assigned_partitions", ())]
        assigned = frozenset((entry["topic"], p) for entry in topics for p in entry["partitions"])
        state = (found["group_state"] or "").lower()
        return GroupDescription(state=state, members=len(members), assigned=assigned)

    def delete_group(self, group: str) -> None:
        with _kafka_errors():
            outcome = self._admin.delete_groups([group])[group]
        if outcome != "OK":
            raise DriverError(getattr(kafka.errors, outcome).errno, outcome)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        with _kafka_errors():
            found = self._admin.list_group_offsets([group])[group]
        return {p.partition: o.offset for p, o in found.items() if p.topic == topic and o.offset >= 0}

    def alter_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        wanted = {
            TopicPartition(topic, p): OffsetAndMetadata(offset, "", -1) for p, offset in offsets.items()
        }
        with _kafka_errors():
            for outcome in self._admin.alter_group_offsets(group, wanted).values():
                if outcome is not NoError:
                    raise outcome(group)

    def join(self, membership: Membership) -> int:
        if membership.protocol != "classic":
            raise Unsupported("kafka-python speaks the classic group protocol only")
        config: dict[str, Any] = {"bootstrap_servers": self._bootstrap, "group_id": membership.group}
        if membership.allow_auto_create is False:
            raise Unsupported("kafka-python creates the topic all the same, on Kafka too")
        consumer = KafkaPythonConsumer(
            auto_offset_reset="earliest",
            group_instance_id=membership.instance_id,
            session_timeout_ms=membership.session_timeout_ms,
            heartbeat_interval_ms=300,
            partition_assignment_strategy=[_ASSIGNORS[membership.assignor or "range"]],
            **config,
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
            producer.close(0)
        self._admin.close()


class KafkaPythonConsumer(Consumer, kafka.ConsumerRebalanceListener):
    def __init__(self, **config: Any) -> None:
        self._consumer = kafka.KafkaConsumer(
            enable_auto_commit=False, fetch_max_wait_ms=100, metadata_max_age_ms=1000, **_RECONNECT, **config
        )

    def assign(self, topic: str, start: Mapping[int, int]) -> None:
        places = {TopicPartition(topic, p): offset for p, offset in start.items()}
        self._consumer.assign(list(places))
        for place, offset in places.items():
            self._consumer.seek(place, offset)

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(list(topics), listener=self)

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        self.rebalances += 1

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        self.revoked |= {(place.topic, place.partition) for place in revoked}

    def poll(self, timeout_s: float) -> list[Record]:
        self._keep_rejoining()
        with _kafka_errors():
            found = self._consumer.poll(timeout_ms=int(timeout_s * 1000))
        return [_record(record) for records in found.values() for record in records]

    def _keep_rejoining(self) -> None:
        """Have the next poll take the outcome of a rebalance that the last one left under way.

        A leader that rejoins because partitions have changed compares them with those of its last
        assignment, which it makes between the answers to JoinGroup and SyncGroup. A poll that begins
        between the two sees no reason to rejoin, and nobody ever takes the second answer: no
        heartbeats, the old assignment (of a leader that did not know its topics: none), no records.
        Java's client keeps the reason (KAFKA-9815), kafka-python 3.0 does not.
        """
        if self._consumer.group_metadata().state is GroupState.REBALANCING:
            self._consumer._coordinator.request_rejoin()

    def assigned(self) -> frozenset[tuple[str, int]]:
        return frozenset((place.topic, place.partition) for place in self._consumer.assignment())

    def commit(self, topic: str, offsets: Mapping[int, int]) -> None:
        with _kafka_errors():
            self._consumer.commit(
                {TopicPartition(topic, p): OffsetAndMetadata(offset, "", -1) for p, offset in offsets.items()}
            )

    def close(self) -> None:
        self._consumer.close()


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
