"""confluent-kafka's clients, made from a Connection.

Properties are librdkafka's own, written with underscores for dots:
`consumer(connection, "billing", auto_offset_reset="earliest")`.
"""

from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from headrace.client.connection import Connection

__all__ = ["admin", "consumer", "producer"]

_UNDERSCORED = ("log_level", "error_cb", "stats_cb", "throttle_cb")  # as librdkafka itself writes them


def producer(connection: Connection, **properties: Any) -> Producer:
    """A producer whose records are acknowledged once they are on disk."""
    return Producer(_merged(connection, {"acks": "all"}, properties))


def consumer(connection: Connection, group: str, **properties: Any) -> Consumer:
    """A member of a group that commits offsets only when told to."""
    return Consumer(_merged(connection, {"group.id": group, "enable.auto.commit": False}, properties))


def admin(connection: Connection, **properties: Any) -> AdminClient:
    """A client for topics, groups and configurations."""
    return AdminClient(_merged(connection, {}, properties))


def _merged(connection: Connection, defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    shared = {
        "bootstrap.servers": connection.bootstrap_servers,
        "client.id": connection.client_id,
        # When the only broker was away, librdkafka 2.16 begins anew from the bootstrap servers, and what
        # had to do with the coordinator (offsets of groups and of transactions) then waits for ever.
        "metadata.recovery.strategy": "none",
    }
    return (
        shared
        | connection.client_properties()
        | defaults
        | {_property(name): value for name, value in given.items()}
    )


def _property(name: str) -> str:
    return name if name in _UNDERSCORED else name.replace("_", ".")
