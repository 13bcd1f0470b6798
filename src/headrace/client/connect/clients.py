"""confluent-kafka's clients, made from a Connection.

Properties are librdkafka's own, written with underscores for dots:
`consumer(connection, "billing", auto_offset_reset="earliest")`.
"""

from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from headrace.client.connect.connection import Connection

__all__ = ["admin", "consumer", "producer"]

_UNDERSCORED = ("log_level", "error_cb", "stats_cb", "throttle_cb")  # as librdkafka itself writes them


def producer(connection: Connection, **properties: Any) -> Producer:
    """A producer whose records are acknowledged once they are on disk."""
    return Producer(_merged(connection, {"acks": "all"}, properties))


def consumer(connection: Connection, group: str, **properties: Any) -> Consumer:
    """A member of a group that commits offsets only explicitly."""
    return Consumer(_merged(connection, {"group.id": group, "enable.auto.commit": False}, properties))


def admin(connection: Connection, **properties: Any) -> AdminClient:
    """A client for topics, groups and configurations."""
    return AdminClient(_merged(connection, {}, properties))


def _merged(connection: Connection, defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    shared: dict[str, Any] = {
        "bootstrap.servers": connection.bootstrap_servers,
        "client.id": connection.client_id,
        # What the library would log is raised by our calls as errors, or does not matter, such as a broker
        # that stops while its clients are stopping.
        "log_level": 0,
        # When the only broker was away, librdkafka 2.16 starts over from the bootstrap servers, and requests
        # to the coordinator (offsets of groups and of transactions) then wait for ever.
        "metadata.recovery.strategy": "none",
        # The library waits up to 10 s before it tries to connect again, however short the broker was away.
        "reconnect.backoff.max.ms": 300,
    }
    if connection.rack():
        shared["client.rack"] = connection.rack()
    return (
        shared
        | connection.client_properties()
        | defaults
        | {_property(name): value for name, value in given.items()}
    )


def _property(name: str) -> str:
    return name if name in _UNDERSCORED else name.replace("_", ".")
