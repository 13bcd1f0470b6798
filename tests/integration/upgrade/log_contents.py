"""Everything that a log keeps, written by any version and read back by plain clients."""

import time
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from queue_member import ACCEPT, REJECT, RELEASE, QueueMember

from headrace.client.connect.channel import Channel
from headrace.records import Record, encode_batch
from headrace.wire import Api

TIMEOUT_S = 120
TOPICS = {
    "orders": NewTopic("orders", 3, 1, config={"segment.bytes": "20000", "retention.ms": "-1"}),
    "places": NewTopic(
        "places", 1, 1, config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
    ),
    "work": NewTopic("work", 1, 1),
    "single": NewTopic("single", 1, 1),
}
CODECS = ("none", "gzip", "lz4", "zstd", "snappy")
LEFT_OPEN = "left-open"
NOW_MS = int(time.time() * 1000)  # recent, or retention would rightly remove the records
PRODUCER_ID_BATCH = [Record(n, NOW_MS, b"k", b"single %d" % n) for n in range(3)]


@dataclass
class Contents:
    """What clients see of a log."""

    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    records: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    committed: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    groups: dict[str, dict[str, tuple[int, str | None]]] = field(default_factory=dict)
    quotas: dict[str | None, dict[str, float]] = field(default_factory=dict)


class Log:
    """Clients of one broker."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.servers = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}
        self.admin = AdminClient(self.servers)

    def request(self, api: Api, version: int, fields: dict[str, Any]) -> Any:
        channel = Channel("127.0.0.1", self.port, client_id="plain", timeout_ms=60_000)
        try:
            return channel.request(api, version, fields)
        finally:
            channel.close()

    # --- writing ---

    def fill(self) -> None:
        """One of everything: the log is left with an open transaction and a leased record."""
        for done in self.admin.create_topics(list(TOPICS.values())).values():
            done.result(TIMEOUT_S)
        for number, codec in enumerate(CODECS):
            self.send("orders", range(number * 300, number * 300 + 300), **{"compression.type": codec})
        for turn in range(3):
            self.send("places", range(40), value=lambda n, turn=turn: b"turn %d of %d" % (turn, n))
        self._transactions()
        self._groups()
        self._queue()
        self.set_quota("billing-client", 12_345.0)
        assert self.send_single().base_offset == 0

    def send(
        self, topic: str, numbers: range, value: Any = lambda n: b"value %d" % n, **properties: Any
    ) -> None:
        producer = Producer({**self.servers, "enable.idempotence": True, "linger.ms": 20, **properties})
        partitions = TOPICS[topic].num_partitions
        for n in numbers:
            producer.produce(
                topic, value(n), key=b"key %d" % n, partition=n % partitions,
                timestamp=NOW_MS + n, headers=[("h", b"%d" % n), ("null", None)],
            )  # fmt: skip
        assert producer.flush(TIMEOUT_S) == 0

    def transaction(self, name: str, numbers: range, end: str) -> Producer:
        producer = Producer(
            {**self.servers, "transactional.id": name, "transaction.timeout.ms": 900_000, "linger.ms": 5}
        )
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for n in numbers:
            producer.produce("orders", b"%s %d" % (name.encode(), n), key=b"t", partition=n % 3)
        assert producer.flush(TIMEOUT_S) == 0
        if end:
            getattr(producer, f"{end}_transaction")(TIMEOUT_S)
        return producer

    def _transactions(self) -> None:
        self.transaction("committed", range(10), "commit")
        self.transaction("aborted", range(10), "abort")
        self.kept_open = self.transaction(LEFT_OPEN, range(3), "")

    def _groups(self) -> None:
        for name, protocol in (("classic-group", "classic"), ("new-group", "consumer")):
            consumer = Consumer(
                {**self.servers, "group.id": name, "group.protocol": protocol, "enable.auto.commit": False,
                 "auto.offset.reset": "earliest"}
            )  # fmt: skip
            consumer.subscribe(["places"])
            taken = consumer.consume(25, TIMEOUT_S)
            assert len(taken) == 25
            consumer.commit(
                offsets=[TopicPartition("places", 0, taken[-1].offset() + 1, metadata=f"by {name}")],
                asynchronous=False,
            )
            consumer.close()

    def _queue(self) -> None:
        resource = ConfigResource(
            ResourceType.GROUP,
            "work",
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in {
                    "share.auto.offset.reset": "earliest",
                    "share.record.lock.duration.ms": "60000",
                }.items()
            ],
        )
        for done in self.admin.incremental_alter_configs([resource]).values():
            done.result(TIMEOUT_S)
        self.send("work", range(5))
        member = self.queue_member("one")
        member.fetch()
        assert member.acknowledge((0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT)) == 0
        member.close()

    def queue_member(self, name: str) -> QueueMember:
        answer = self.request(Api.METADATA, 12, {"topics": [{"topic_id": None, "name": "work"}]})
        member = QueueMember(self.port, "work", name, answer.topics[0].topic_id)
        assert member.beat("work").error_code == 0
        return member

    def set_quota(self, client: str, rate: float) -> None:
        entry = {
            "entity": [{"entity_type": "client-id", "entity_name": client}],
            "ops": [{"key": "producer_byte_rate", "value": rate, "remove": False}],
        }
        body = {"entries": [entry], "validate_only": False}
        assert self.request(Api.ALTER_CLIENT_QUOTAS, 1, body).entries[0].error_code == 0

    def send_single(self) -> Any:
        """One batch of a producer whose id, epoch and sequence are always the same: a repetition is known."""
        batch = encode_batch(PRODUCER_ID_BATCH, producer_id=4_242, producer_epoch=0, base_sequence=0)
        data = [{"name": "single", "partition_data": [{"index": 0, "records": bytes(batch)}]}]
        answer = self.request(Api.PRODUCE, 9, {"acks": -1, "timeout": 60_000, "topic_data": data})
        part = answer.responses[0].partition_responses[0]
        assert part.error_code == 0, part
        return part

    # --- reading ---

    def contents(self) -> Contents:
        found = Contents()
        for name, topic in TOPICS.items():
            resource = ConfigResource(ResourceType.TOPIC, name)
            (described,) = self.admin.describe_configs([resource]).values()
            found.topics[name] = {
                key: entry.value for key, entry in described.result(TIMEOUT_S).items() if not entry.is_default
            }
            for partition in range(topic.num_partitions):
                where = f"{name}/{partition}"
                found.records[where] = self.read(name, partition, "read_uncommitted")
                found.committed[where] = self.read(name, partition, "read_committed")
        for group in ("classic-group", "new-group", "work"):
            found.groups[group] = self.offsets(group)
        answer = self.request(Api.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False})
        found.quotas = {
            each.entity[0].entity_name: {value.key: value.value for value in each.values}
            for each in answer.entries
        }
        return found

    def offsets(self, group: str) -> dict[str, tuple[int, str | None]]:
        (asked,) = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        try:
            return {
                f"{each.topic}/{each.partition}": (each.offset, each.metadata)
                for each in asked.result(TIMEOUT_S).topic_partitions
            }
        except KafkaException:
            return {}  # a queue has no offsets of this kind

    def read(self, topic: str, partition: int, isolation: str) -> list[tuple[Any, ...]]:
        """Each record of a partition as far as this isolation shows it."""
        consumer = Consumer(
            {**self.servers, "group.id": "reader", "isolation.level": isolation, "enable.auto.commit": False,
             "enable.partition.eof": True, "auto.offset.reset": "earliest"}
        )  # fmt: skip
        consumer.assign([TopicPartition(topic, partition, 0)])
        found = []
        while (message := consumer.poll(TIMEOUT_S)) is not None:
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                break
            found.append(
                (message.offset(), message.timestamp(), message.key(), message.value(), message.headers())
            )
        assert message is not None, f"{topic}/{partition} was not read to its end"
        consumer.close()
        return found
