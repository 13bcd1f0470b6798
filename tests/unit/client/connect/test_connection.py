"""Where a log is, as a user writes it; and a connection to something that is not a log."""

import socket
import threading

import pytest

from headrace.client import Channel, Connection
from headrace.errors import ConfigError, RetriableError
from headrace.wire import Api


def test_servers_are_hosts_and_ports():
    connection = Connection(bootstrap_servers="a:1, b.example:9092,[::1]:7")
    assert connection.servers() == [("a", 1), ("b.example", 9092), ("::1", 7)]


@pytest.mark.parametrize("text", ["", " , ", "host", "host:", ":9092", "host:port", "host:0", "host:70000"])
def test_a_server_that_is_not_host_and_port_is_refused_by_name(text):
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        Connection(bootstrap_servers=text).servers()


@pytest.fixture
def answering():
    """A server that answers the first request with the given bytes and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def start(answer: bytes) -> Channel:
            def serve():
                accepted, _ = server.accept()
                with accepted:
                    accepted.recv(1000)
                    accepted.sendall(answer)

            threading.Thread(target=serve, daemon=True).start()
            return Channel("127.0.0.1", server.getsockname()[1], client_id="test", timeout_ms=5000)

        yield start


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "closed the connection"),
        (b"\0\0", "closed the connection"),
        (b"\0\0\0\x64abc", "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not Kafka's protocol"),
        (b"\xff\xff\xff\xff", "is not Kafka's protocol"),
        (b"\0\0\0\x0a\0\0\0\x09" + bytes(6), "answered request 9, not 1"),
    ],
)
def test_an_answer_that_is_none_is_a_retriable_error_with_the_reason(answering, answer, reason):
    channel = answering(answer)
    with pytest.raises(RetriableError, match=reason):
        channel.request(Api.API_VERSIONS, 0, {})


def test_silence_ends_with_the_timeout():
    with socket.create_server(("127.0.0.1", 0)) as server:
        channel = Channel("127.0.0.1", server.getsockname()[1], client_id="test", timeout_ms=50)
        with pytest.raises(RetriableError, match="timed out"):
            channel.request(Api.API_VERSIONS, 0, {})
