"""How many bytes each partition takes, asked of the brokers with DescribeLogDirs.

The client library has no call for this request, so it is spoken here: version 1,
whose layout is fixed-width, and which Kafka and our broker both serve.
"""

import socket
import struct
from collections.abc import Iterable
from typing import Any

__all__ = ["decode_sizes", "encode_request", "partition_sizes"]

API_KEY = 35
API_VERSION = 1
TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024


def partition_sizes(brokers: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Bytes per (topic, partition), the largest copy where there are several.

    A broker that cannot be asked contributes nothing: its sizes are unknown, not zero.
    """
    sizes: dict[tuple[str, int], int] = {}
    for address in brokers:
        try:
            answer = _ask(address)
        except (OSError, struct.error, ValueError):
            continue
        for partition, size in decode_sizes(answer).items():
            sizes[partition] = max(size, sizes.get(partition, 0))
    return sizes


def _ask(address: tuple[str, int]) -> bytes:
    with socket.create_connection(address, timeout=TIMEOUT_S) as connection:
        connection.sendall(encode_request(correlation_id=1))
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        if not 0 <= size <= ANSWER_BYTES_MAX:
            raise ValueError(f"an answer of {size} bytes")
        return _exactly(connection, size)


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        chunk = connection.recv(min(65536, count - len(received)))
        if not chunk:
            raise ValueError("connection closed in mid-answer")
        received += chunk
    return bytes(received)


def encode_request(*, correlation_id: int) -> bytes:
    """A whole frame that asks for every topic (a null array)."""
    client = b"headrace-cli"
    body = struct.pack(">hhih", API_KEY, API_VERSION, correlation_id, len(client)) + client
    body += struct.pack(">i", -1)
    return struct.pack(">i", len(body)) + body


class _Answer:
    """Reads the answer's fields from left to right."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(layout, self.data, self.position)
        self.position += struct.calcsize(layout)
        return values

    def text(self) -> str:
        (size,) = self.take(">h")
        text = self.data[self.position : self.position + size].decode(errors="replace")
        self.position += size
        return text

    def count(self) -> range:
        return range(max(0, self.take(">i")[0]))


def decode_sizes(data: bytes) -> dict[tuple[str, int], int]:
    """Bytes per (topic, partition) of one broker; copies being moved are left out."""
    answer = _Answer(data)
    answer.take(">ii")  # correlation id, throttle time
    sizes: dict[tuple[str, int], int] = {}
    for _ in answer.count():
        answer.take(">h")
        answer.text()
        for _ in answer.count():
            topic = answer.text()
            for _ in answer.count():
                partition, size, _, is_future = answer.take(">iqq?")
                if not is_future:
                    sizes[topic, partition] = size
    return sizes
