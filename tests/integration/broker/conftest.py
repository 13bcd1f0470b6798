"""A broker in this process, and a bare connection to it."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.broker import Broker
from headrace.client.connect.channel import Channel
from headrace.records import Record, encode_batch
from headrace.testing.broker import running_broker
from headrace.wire import Api

_names = itertools.count()


class Peer(Channel):
    """A connection that speaks plain requests, with short words for the common ones."""

    def __init__(self, port: int) -> None:
        super().__init__("127.0.0.1", port, client_id="peer", timeout_ms=20_000)

    def create(self, topic: str, partitions: int = 1, **configs: object) -> None:
        wanted = {
            "name": topic,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [
                {"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()
            ],
        }
        (answer,) = self.request(Api.CREATE_TOPICS, 7, {"topics": [wanted]}).topics
        assert answer.error_code == 0, answer.error_message

    def produce(self, topic: str, batch: bytes, *, partition: int = 0, acks: int = -1) -> Any:
        (answer,) = self.request(Api.PRODUCE, 9, produce_fields(topic, batch, partition, acks)).responses
        return answer.partition_responses[0]

    def fetch(
        self, topic: str, offset: int, *, wait_ms: int = 0, max_bytes: int = 1 << 20, min_bytes: int = 1
    ) -> Any:
        part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}
        fields = {
            "max_wait": wait_ms,
            "min_bytes": min_bytes,
            "topics": [{"topic": topic, "partitions": [part]}],
        }
        answer = self.request(Api.FETCH, 11, fields, wait_ms=wait_ms)
        return answer.responses[0].partitions[0]

    @property
    def socket(self) -> Any:
        return self._socket


def produce_fields(topic: str, batch: bytes | None, partition: int = 0, acks: int = -1) -> dict[str, Any]:
    data = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
    return {"acks": acks, "timeout": 10_000, "topic_data": data}


NOW_MS = int(time.time() * 1000)  # recent, or retention would rightly remove the records
WITHOUT_END_MS = 1_800_000  # longer than any test may take: whoever waits for its end hangs


def batch_of(*values: bytes, timestamp_ms: int = NOW_MS) -> bytearray:
    return bytearray(encode_batch([Record(n, timestamp_ms, None, value) for n, value in enumerate(values)]))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def peer(broker: Broker) -> Iterator[Peer]:
    with contextlib.closing(Peer(broker.port)) as peer:
        yield peer


@pytest.fixture
def topic(peer: Peer) -> str:
    name = f"topic-{next(_names)}"
    peer.create(name)
    return name


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Starts brokers of a test's own, with its settings."""
    with contextlib.ExitStack() as stack:
        yield lambda **settings: stack.enter_context(
            running_broker(settings.pop("data", tmp_path), **settings)
        )
