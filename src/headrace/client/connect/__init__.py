"""Connections to a log: addresses, identity, TLS and login, and the clients of confluent-kafka."""

from headrace.client.connect.channel import Channel
from headrace.client.connect.connection import Connection
from headrace.client.connect.errors import UnreachableError, explained, from_kafka
from headrace.client.connect.identity import PASSWORD_VARIABLE, SYSTEM, Identity, read_password
from headrace.client.connect.login import MECHANISMS

__all__ = [
    "MECHANISMS",
    "PASSWORD_VARIABLE",
    "SYSTEM",
    "Channel",
    "Connection",
    "Identity",
    "UnreachableError",
    "explained",
    "from_kafka",
    "read_password",
]
