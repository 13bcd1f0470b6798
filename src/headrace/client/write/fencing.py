"""Fences all producers whose transactional ids begin alike, however many there are.

Which ids there are only the coordinators know, so they are asked (ListTransactions); each id is then
given a new epoch (InitProducerId). Its last owner's open transaction has been aborted when that is
answered, and nothing can follow under the old epoch. Whom no coordinator could name would go on
writing, so there is no answer while one of them is missing.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from headrace.client.connect import Channel, Connection
from headrace.client.connect.brokers import Brokers, check_code
from headrace.errors import RetriableError
from headrace.wire import Api, ErrorCode, Fields

__all__ = ["fence"]

# One version of each, which Kafka has spoken since 3.0 and our broker speaks.
_VERSIONS = {
    Api.METADATA: 9,
    Api.LIST_TRANSACTIONS: 0,
    Api.FIND_COORDINATOR: 4,
    Api.INIT_PRODUCER_ID: 4,
}
_TRANSACTION = 1
_TRANSACTIONS = "__transaction_state"
_TIMEOUT_MS = 60_000
_BACKOFF_S = 0.02
_UNFINISHED = (ErrorCode.concurrent_transactions,)


def fence(connection: Connection, prefix: str) -> list[str]:
    """Fences every producer of a transactional id that begins with the prefix; the ids.

    Raises RetriableError if a coordinator cannot be reached in time.
    """
    brokers = Brokers(connection, _VERSIONS)
    with closing(brokers):
        found = brokers.retrying(lambda: sorted(_known(brokers, prefix)))
        for name in found:
            brokers.retrying(lambda name=name: _fence(brokers, name, connection))  # type: ignore[misc]
    return found


def _known(brokers: Brokers, prefix: str) -> Iterator[str]:
    """The transactional ids of all coordinators; each broker is one of some of them.

    Raises RetriableError unless it is certain that somebody answered for every one of them. After the death
    of a broker what it coordinated is nobody's for a moment, or until it returns.
    """
    before = _coordinators(brokers)
    for node in before.nodes:
        answer = brokers.ask(
            brokers.node(node), Api.LIST_TRANSACTIONS, {"state_filters": [], "producer_id_filters": []}
        )
        check_code(answer.error_code, "the list of transactions")
        for state in answer.transaction_states:
            if state.transactional_id.startswith(prefix):
                yield state.transactional_id
    if _coordinators(brokers) != before:
        raise RetriableError("transactions changed their coordinators while these were asked; try again")


class _Coordinators(NamedTuple):
    """The brokers, and who leads each partition of the topic of transactions since which epoch."""

    nodes: frozenset[int]
    leaders: Mapping[int, tuple[int, int]]


def _coordinators(brokers: Brokers) -> _Coordinators:
    """As all brokers agree that it is; raises RetriableError while they do not, or a leader is missing."""
    cluster = _metadata(brokers, brokers.any())
    brokers.learn(cluster.brokers)
    first, *others = (_seen(_metadata(brokers, brokers.node(each.node_id))) for each in cluster.brokers)
    if any(each != first for each in others):
        raise RetriableError("the brokers do not agree yet on who coordinates transactions; try again")
    missing = [number for number, (leader, _) in first.leaders.items() if leader not in first.nodes]
    if missing:
        raise RetriableError(
            f"{_TRANSACTIONS}: {len(missing)} partitions have no leader, so nobody knows which producers to "
            "fence; start the brokers that keep them"
        )
    return first


def _metadata(brokers: Brokers, channel: Channel) -> Fields:
    fields = {
        "topics": [{"name": _TRANSACTIONS}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    return brokers.ask(channel, Api.METADATA, fields)


def _seen(answer: Fields) -> _Coordinators:
    """What one broker says; it names no partitions before the first transaction, or if they are hidden."""
    partitions = (each for topic in answer.topics for each in topic.partitions)
    return _Coordinators(
        nodes=frozenset(each.node_id for each in answer.brokers),
        leaders={each.partition_index: (each.leader_id, each.leader_epoch) for each in partitions},
    )


def _fence(brokers: Brokers, name: str, connection: Connection) -> None:
    asked = {"key_type": _TRANSACTION, "coordinator_keys": [name]}
    found = brokers.ask(brokers.any(), Api.FIND_COORDINATOR, asked).coordinators[0]
    check_code(found.error_code, f"the coordinator of {name}")
    fields = {
        "transactional_id": name,
        "transaction_timeout": _TIMEOUT_MS,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    deadline = time.monotonic() + connection.retry_timeout_ms / 1000
    while True:
        answer = brokers.ask(brokers.at(found.host, found.port), Api.INIT_PRODUCER_ID, fields)
        if answer.error_code not in _UNFINISHED:
            check_code(answer.error_code, f"a new epoch for {name}")
            return
        if time.monotonic() > deadline:  # an older transaction is still being aborted
            raise RetriableError(f"the transaction of {name} did not end; try again")
        time.sleep(_BACKOFF_S)
