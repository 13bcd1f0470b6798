"""Consume, transform, produce: for each record a derived one, and its offset, in one transaction."""

import itertools

import confluent_kafka as ck

from recorded.client import DERIVED, PARTITIONS, SOURCE, TIMEOUT_S, TRANSACTION_MS, Job
from recorded.invariants import TRANSFORM_GROUP
from recorded.producers import Sender, end, finish, is_fenced
from recorded.recorder import Recorder

__all__ = ["run"]


def run(job: Job) -> None:
    """After anything that went wrong it starts over with a new producer and where the group is."""
    recorder, numbers = job.recorder(), itertools.count()
    for instance in itertools.count():
        if job.stopping:
            return
        transformer = Transformer(job, recorder, f"{job.process}#{instance}", numbers)
        try:
            transformer.run()
        except ck.KafkaException as error:
            if is_fenced(error) and instance == 0 and transformer.is_ready:
                recorder.info("fenced", instance=transformer.instance, why=str(error))
                return
            recorder.info("transform", why=str(error))
        finally:
            transformer.close()


class Transformer:
    """One member of the group and its producer."""

    def __init__(self, job: Job, recorder: Recorder, instance: str, numbers: "itertools.count[int]") -> None:
        self.instance = instance
        self.is_ready = False
        self._job = job
        self._recorder = recorder
        self._numbers = numbers
        self._producer = ck.Producer(
            job.librdkafka(transactional_id=job.name, transaction_timeout_ms=TRANSACTION_MS)
        )
        self._consumer = ck.Consumer(
            job.librdkafka(
                group_id=TRANSFORM_GROUP,
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                session_timeout_ms=6000,
                fetch_wait_max_ms=100,
            )
        )
        self._lost = False

    def run(self) -> None:
        self._recorder.invoke("init", instance=self.instance, txid=self._job.name)
        finish(self._producer.init_transactions)
        self._recorder.ok("init", instance=self.instance, txid=self._job.name)
        self.is_ready = True
        sender = Sender(self._producer, self._recorder)
        self._consumer.subscribe([SOURCE], on_assign=self._assigned)
        while not self._job.stopping:
            messages = [each for each in self._consumer.consume(20, 0.2) if each.error() is None]
            if messages:
                self._transform(sender, messages)

    def _assigned(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        places = [(each.topic, each.partition, None) for each in partitions]
        self._recorder.ok("assign", partitions=places, committed=True, group=TRANSFORM_GROUP)

    def _transform(self, sender: Sender, messages: list[ck.Message]) -> None:
        number = next(self._numbers)
        name = f"{self._job.process}/{number}"
        places = [(each.topic(), each.partition(), each.offset()) for each in messages]
        self._recorder.ok(
            "poll",
            records=[(*place, each.value().decode()) for place, each in zip(places, messages, strict=True)],
        )
        self._recorder.invoke("begin", txn=name, instance=self.instance)
        self._producer.begin_transaction()
        for n, place in enumerate(places):
            to = (place[1] + n) % PARTITIONS
            sender.send(DERIVED, to, f"{name}/{n}", txn=name, source=place)
        ends = {(topic, partition): offset + 1 for topic, partition, offset in places}
        positions = [ck.TopicPartition(*where, offset) for where, offset in ends.items()]
        member = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(positions, member, TIMEOUT_S)
        end(self._producer, self._recorder, name, commit=True)

    def close(self) -> None:
        self._consumer.close()
