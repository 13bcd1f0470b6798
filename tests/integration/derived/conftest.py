import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer

from headrace.client import Connection
from headrace.client.topics import TopicSettings, ensure_topics
from headrace.derived import Follow, FollowRun, open_target
from headrace.testing.broker import running_broker


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("log")) as broker:
        yield f"127.0.0.1:{broker.port}"


def create_topic(bootstrap: str, topic: str, partitions: int = 3, **configs: str) -> None:
    settings = TopicSettings(partitions=partitions, configs={"cleanup.policy": "compact", **configs})
    ensure_topics(Connection(bootstrap_servers=bootstrap), {topic: settings})


def send(bootstrap: str, topic: str, rows: list[tuple[bytes | None, Any]]) -> None:
    """Rows as upserts; None is a tombstone, bytes are sent as they are."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "message.max.bytes": 8 << 20})
    for key, row in rows:
        value = row if row is None or isinstance(row, bytes) else orjson.dumps(row)
        producer.produce(topic, value, key)
    assert producer.flush(60) == 0


@contextmanager
def following(bootstrap: str, follow: Follow, **settings: Any) -> Iterator[FollowRun]:
    """A follower in a thread of its own, stopped at the end of the block."""
    connection = Connection(bootstrap_servers=bootstrap, retry_timeout_ms=2_000)
    run = FollowRun(follow, settings.pop("target", None) or open_target(follow), connection, **settings)
    thread = threading.Thread(target=run.run, daemon=True)
    thread.start()
    try:
        yield run
    finally:
        run.stop()
        thread.join(30)
        assert not thread.is_alive()


def has_all(run: FollowRun) -> bool:
    """Whether the follower has nothing left to read."""
    return run.status.state == "following" and run.status.behind == 0


def wait_until(holds: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.01)


def last_of_each(rows: list[tuple[bytes, Mapping[str, Any] | None]]) -> dict[bytes, Any]:
    """The model: the newest row of each key."""
    found = dict(rows)
    return {key: row for key, row in found.items() if row is not None}
