"""What librdkafka's clients are told, beside what the caller says."""

from headrace.client import Connection
from headrace.client.connect.clients import _merged


def test_a_client_is_soon_back_when_its_broker_is_unless_the_caller_says_otherwise():
    connection = Connection(bootstrap_servers="127.0.0.1:1")
    assert _merged(connection, {}, {})["reconnect.backoff.max.ms"] <= 1_000
    assert _merged(connection, {}, {"reconnect_backoff_max_ms": 7_000})["reconnect.backoff.max.ms"] == 7_000
    assert _merged(connection, {"acks": "all"}, {"acks": 1})["acks"] == 1
