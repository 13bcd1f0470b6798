"""What librdkafka's clients are told, beside what the caller says; and that they say nothing themselves."""

import subprocess
import sys

from headrace.client import Connection
from headrace.client.connect.clients import _merged


def test_a_client_is_soon_back_when_its_broker_is_unless_the_caller_says_otherwise():
    connection = Connection(bootstrap_servers="127.0.0.1:1")
    assert _merged(connection, {}, {})["reconnect.backoff.max.ms"] <= 1_000
    assert _merged(connection, {}, {"reconnect_backoff_max_ms": 7_000})["reconnect.backoff.max.ms"] == 7_000
    assert _merged(connection, {"acks": "all"}, {"acks": 1})["acks"] == 1


REFUSED = """
import sys
from headrace.client import Connection, admin, consumer, producer

connection = Connection(bootstrap_servers=sys.argv[1])
tried = []
clients = [
    admin(connection, error_cb=tried.append),
    producer(connection, error_cb=tried.append),
    consumer(connection, "group", error_cb=tried.append),
]
while len(tried) < 6:
    for each in clients:
        each.poll(0.05)
"""


def test_clients_whose_broker_is_gone_write_nothing_beside_a_command_s_own_words(unused_port):
    """librdkafka would write a line that ends in FAIL for each connection."""
    command = [sys.executable, "-c", REFUSED, f"127.0.0.1:{unused_port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("", "")
