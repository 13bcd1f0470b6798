"""The two logs under comparison, set up alike."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from headrace.broker.access import offline
from headrace.testing.broker import BrokerProcess
from headrace.testing.kafka import KafkaServer
from headrace.wire import Api
from parity.stage import Peer, Stage

__all__ = ["kafka_secured_stage", "kafka_stage", "our_secured_stage", "our_stage"]

KAFKA_SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


@contextlib.contextmanager
def our_stage(data: Path) -> Iterator[Stage]:
    """A `headrace broker` that, as Kafka here, does not wait for further members of a group."""
    with BrokerProcess(data, group_initial_rebalance_delay_ms=0) as broker:
        yield warm(Stage("headrace", broker.port))


@contextlib.contextmanager
def kafka_stage() -> Iterator[Stage]:
    with KafkaServer(KAFKA_SETTINGS, quick=True) as server:
        yield warm(Stage("kafka", int(server.bootstrap.rpartition(":")[2])))


def warm(stage: Stage) -> Stage:
    """Waits until the internal topics are there: Kafka makes them when they are first needed."""
    for kind, name in enumerate(("group", "transaction")):
        fields = {"key_type": kind, "coordinator_keys": [name]}
        stage.settled(
            lambda fields=fields: stage.ask(Api.FIND_COORDINATOR, 4, fields).coordinators[0]  # type: ignore[misc]
        )
    stage.settled(lambda: stage.ask(Api.HEARTBEAT, 4, {"group_id": "warm", "member_id": "x"}))
    producer = {"transactional_id": "warm", "transaction_timeout": 60_000}
    stage.settled(lambda: stage.ask(Api.INIT_PRODUCER_ID, 4, producer))
    stage.close()
    return stage


USERS = {"admin": "password-of-admin", "alice": "password-of-alice"}


def log_in(peer: Peer, user: str) -> None:
    """By PLAIN, as its own password has it."""
    assert peer.request(Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}).error_code == 0
    fields = {"auth_bytes": f"\0{user}\0{USERS[user]}".encode()}
    assert peer.request(Api.SASL_AUTHENTICATE, 2, fields).error_code == 0


@contextlib.contextmanager
def our_secured_stage(data: Path) -> Iterator[Stage]:
    """Ours, where everybody has to log in and `admin` may do everything."""
    for user, password in USERS.items():
        offline.add_user(data, user, password)
    with BrokerProcess(
        data, authenticate=True, super_users="admin", group_initial_rebalance_delay_ms=0
    ) as broker:
        yield warm(Stage("headrace", broker.port, log_in))


@contextlib.contextmanager
def kafka_secured_stage() -> Iterator[Stage]:
    with KafkaServer(KAFKA_SETTINGS, users=USERS, quick=True) as server:
        yield warm(Stage("kafka", int(server.sasl_bootstrap.rpartition(":")[2]), log_in))
