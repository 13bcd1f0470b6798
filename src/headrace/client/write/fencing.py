"""Fences all producers whose transactional ids begin alike, however many there are.

Which ids there are only the coordinators know, so they are asked (ListTransactions); each id is then
given a new epoch (InitProducerId). Its last owner's open transaction has been aborted when that is
answered, and nothing can follow under the old epoch.
"""

import time
from collections.abc import Iterator
from contextlib import closing

from headrace.client.connect.brokers import Brokers, check_code
from headrace.client.connect.connection import Connection
from headrace.errors import RetriableError
from headrace.wire import Api, ErrorCode

__all__ = ["fence"]

# One version of each, which Kafka has spoken since 3.0 and our broker speaks.
_VERSIONS = {
    Api.METADATA: 9,
    Api.LIST_TRANSACTIONS: 0,
    Api.FIND_COORDINATOR: 4,
    Api.INIT_PRODUCER_ID: 4,
}
_TRANSACTION = 1
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
    """The transactional ids of all coordinators; each broker is one of some of them."""
    fields = {
        "topics": [],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    cluster = brokers.ask(brokers.any(), Api.METADATA, fields)
    brokers.learn(cluster.brokers)
    for each in cluster.brokers:
        answer = brokers.ask(
            brokers.node(each.node_id),
            Api.LIST_TRANSACTIONS,
            {"state_filters": [], "producer_id_filters": []},
        )
        check_code(answer.error_code, "the list of transactions")
        for state in answer.transaction_states:
            if state.transactional_id.startswith(prefix):
                yield state.transactional_id


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
