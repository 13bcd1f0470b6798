"""Producers and consumers that go on through crashes, each in a thread, writing down what they learn."""

import threading
import time
from collections.abc import Callable

import confluent_kafka as ck
from history import History

PARTITIONS = 4
TOPIC = "campaign"
BURST = 40
# Of librdkafka's own accord a cluster of one node that was gone for a moment is looked up anew,
# which takes longer than a cycle.
RECONNECT = {
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 50,
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}
# Sent once: refused or unanswered means nobody knows, acknowledged means it is there.
ONCE = {"message.send.max.retries": 0, "max.in.flight.requests.per.connection": 5}
# Sent until acknowledged: may be there twice, but in order, since one request is under way at a time.
UNTIL_ACKED = {"message.send.max.retries": 2**31 - 1, "max.in.flight.requests.per.connection": 1}


class Worker:
    """A loop in a thread; an exception in it is raised by `stop`."""

    def __init__(self, step: Callable[[], None], end: Callable[[], None]) -> None:
        self._step = step
        self._end = end
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._step()
            self._end()
        except BaseException as error:
            self._failure = error

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(180)
        assert not self._thread.is_alive(), "a client did not end within three minutes"
        if self._failure is not None:
            raise self._failure


class LoadProducer:
    """Sends bursts over all partitions with acks=all; numbers its records."""

    def __init__(self, name: str, bootstrap: str, history: History, settings: dict[str, object]) -> None:
        self._name = name.encode()
        self._history = history
        self._number = 0
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 2,
                # A broker that is only slow is waited for: a request given up may be carried out later.
                "message.timeout.ms": 300000,
                "socket.timeout.ms": 60000,
                **RECONNECT,
                **settings,
            }
        )
        self._waiting = 0

    def step(self) -> None:
        """One burst; no more than a few are ever under way, so that a crash interrupts fresh ones."""
        for _ in range(BURST):
            self._send()
        self._producer.poll(0.002)
        while self._waiting > 10 * BURST:
            self._producer.poll(0.02)

    def _send(self) -> None:
        value = b"%s:%d:%s" % (self._name, self._number, b"." * (self._number % 200))
        partition = self._number * 7 % PARTITIONS
        self._number += 1
        self._history.sent[value] = partition
        self._waiting += 1
        self._producer.produce(
            TOPIC,
            value,
            key=b"%s-%d" % (self._name, self._number % 16),
            partition=partition,
            on_delivery=self._sent,
        )

    def _sent(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        self._waiting -= 1
        if error is None:
            self._history.acknowledge((message.partition(), message.offset()), message.value())

    def end(self) -> None:
        self._producer.flush(150)


class LoneProducer(LoadProducer):
    """Sends one record after the other, each when the last one is answered."""

    def step(self) -> None:
        self._send()
        while self._waiting:
            self._producer.poll(0.02)


class LiveConsumer:
    """Reads every partition from the start on and stays at the end; never told that an offset is gone."""

    def __init__(self, bootstrap: str, history: History) -> None:
        self._history = history
        self._consumer = ck.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "live",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "check.crcs": True,
                **RECONNECT,
            }
        )
        self._consumer.assign([ck.TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])

    def step(self) -> None:
        for message in self._consumer.consume(1000, 0.1):
            if message.error() is None:
                self._history.see((message.partition(), message.offset()), message.value())
            elif message.error().code() == ck.KafkaError._AUTO_OFFSET_RESET:
                raise AssertionError(
                    f"SeenRecordsNeverVanish: the log is shorter than it was: {message.error()}"
                )

    def end(self) -> None:
        self._consumer.close()


def read_back(bootstrap: str, history: History) -> None:
    """The whole log, every partition from 0 to its end, into `history.log`."""
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "check.crcs": True, **RECONNECT}
    )
    places = [ck.TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)]
    ends = {place.partition: consumer.get_watermark_offsets(place, timeout=60)[1] for place in places}
    consumer.assign(places)
    missing, deadline = sum(ends.values()), time.monotonic() + 120
    while missing:
        assert time.monotonic() < deadline, f"{missing} records below the end were not delivered within 120 s"
        for message in consumer.consume(min(missing, 1000), 0.2):
            assert message.error() is None, message.error()
            history.log[message.partition(), message.offset()] = message.value()
            missing -= 1
    consumer.close()
