"""Producers on librdkafka: idempotent ones, and transactional ones over several partitions."""

import itertools
from collections.abc import Callable
from functools import partial

import confluent_kafka as ck

from recorded.client import PARTITIONS, PAUSE_S, SOURCE, TIMEOUT_S, TRANSACTION_MS, Job
from recorded.recorder import Recorder

__all__ = ["Sender", "finish", "is_fenced", "run_idempotent", "run_transactional"]

BURST = 5
STEP_S = 10.0
FENCED = (ck.KafkaError._FENCED, ck.KafkaError.PRODUCER_FENCED, ck.KafkaError.INVALID_PRODUCER_EPOCH)


class Sender:
    """Records what is sent and what is answered."""

    def __init__(self, producer: ck.Producer, recorder: Recorder) -> None:
        self.producer = producer
        self._recorder = recorder
        self.waiting = 0

    def send(self, topic: str, partition: int, value: str, **what: object) -> None:
        self._recorder.invoke("send", topic=topic, partition=partition, value=value, **what)
        self.waiting += 1
        answered = partial(self._answered, value)
        self.producer.produce(topic, value.encode(), partition=partition, on_delivery=answered)

    def _answered(self, value: str, error: ck.KafkaError | None, message: ck.Message) -> None:
        self.waiting -= 1
        if error is None:
            self._recorder.ok("send", value=value, offset=message.offset())
        else:
            self._recorder.info("send", value=value, why=str(error))


def run_idempotent(job: Job) -> None:
    recorder, numbers = job.recorder(), itertools.count()
    settings = job.librdkafka(enable_idempotence=True, linger_ms=2)
    producer = ck.Producer({**settings, "error_cb": _fatal(recorder)})
    sender = Sender(producer, recorder)
    while not job.stopping:
        for number in itertools.islice(numbers, BURST):
            sender.send(SOURCE, number * 7 % PARTITIONS, f"{job.process}/-/{number}")
        producer.poll(PAUSE_S)
        while sender.waiting > 20 * BURST:
            producer.poll(PAUSE_S)
    producer.flush(TIMEOUT_S)


def _fatal(recorder: Recorder) -> Callable[[ck.KafkaError], None]:
    def note(error: ck.KafkaError) -> None:
        if error.fatal():
            recorder.info("refused", why=str(error))

    return note


def run_transactional(job: Job) -> None:
    recorder, choices = job.recorder(), job.choices()
    producer = ck.Producer(job.librdkafka(transactional_id=job.name, transaction_timeout_ms=TRANSACTION_MS))
    recorder.invoke("init", instance=job.process, txid=job.name)
    finish(producer.init_transactions)
    recorder.ok("init", instance=job.process, txid=job.name)
    sender = Sender(producer, recorder)
    for number in itertools.count():
        if not job.rest():
            return
        name = f"{job.process}/{number}"
        recorder.invoke("begin", txn=name, instance=job.process)
        try:
            producer.begin_transaction()
            for n in range(choices.randint(2, 6)):
                sender.send(SOURCE, choices.randrange(PARTITIONS), f"{name}/{n}", txn=name)
            producer.poll(choices.choice([0, 0, 0.01]))
            end(producer, recorder, name, commit=choices.random() < 0.8)
        except ck.KafkaException as error:
            if is_fenced(error):
                recorder.info("fenced", instance=job.process, why=str(error))
                return
            if error.args[0].fatal():
                recorder.info("refused", why=str(error))
                return
            recorder.info("end", txn=name, why=str(error))
            end(producer, recorder, name, commit=False)


def end(producer: ck.Producer, recorder: Recorder, name: str, *, commit: bool) -> None:
    recorder.invoke("end", txn=name, commit=commit)
    finish(producer.commit_transaction if commit else producer.abort_transaction)
    recorder.ok("end", txn=name, commit=commit)


def finish(call: Callable[[float], None]) -> None:
    """A time-out only says that the answer is still awaited.

    Asked in short steps: records that come back from a broker that dies during an abort are
    thrown away by the next call only, and until then librdkafka waits for them.
    """
    while True:
        try:
            return call(STEP_S)
        except ck.KafkaException as error:
            if not error.args[0].retriable():
                raise


def is_fenced(error: ck.KafkaException) -> bool:
    return error.args[0].code() in FENCED
