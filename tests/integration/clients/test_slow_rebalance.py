"""kafka-python's driver, in this process, where the answers of a rebalance come far apart."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol.consumer import SyncGroupRequest

from clients.driver import Driver, Membership
from clients.drivers.kafka_python import open_driver
from clients.polling import POLL_S
from clients.pool import ClientPool
from clients.targets import Target
from clients.waiting import wait_until


@pytest.fixture
def slow_to_sync(target: Target, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """A driver whose requests for an assignment leave later than a poll takes."""
    send = KafkaConnectionManager.send

    def send_late(manager: KafkaConnectionManager, request: Any, *args: Any, **options: Any) -> Any:
        async def late() -> Any:
            await manager._net.sleep(1.5 * POLL_S)
            return await send(manager, request, *args, **options)

        slow = isinstance(request, SyncGroupRequest)
        return manager.call_soon(late) if slow else send(manager, request, *args, **options)

    monkeypatch.setattr(KafkaConnectionManager, "send", send_late)
    driver = open_driver(target.bootstrap)
    yield driver
    driver.close()


def test_a_rebalance_that_outlasts_a_poll_is_brought_to_its_end(
    slow_to_sync: Driver, clients: ClientPool, new_topic: Callable[..., str], group: str
):
    topic = new_topic(1)
    handle = slow_to_sync.join(Membership(group=group, topics=[topic]))

    def assigned() -> frozenset[tuple[str, int]]:
        return slow_to_sync.member(handle).assigned

    wait_until(lambda: assigned() == {(topic, 0)})
    clients["librdkafka"].create_partitions(topic, 2)
    wait_until(lambda: assigned() == {(topic, 0), (topic, 1)})
