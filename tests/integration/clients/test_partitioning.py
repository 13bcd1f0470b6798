"""A key goes to the same partition whichever client sends it."""

from collections.abc import Callable

import pytest

from clients.driver import Message
from clients.launch import CLIENTS
from clients.pool import ClientPool

PARTITIONS = 7
KEYS = [f"key-{n}".encode() for n in range(150)] + [b"", b"\x00", b"\xff" * 9, "größe".encode(), b"x" * 1001]


def murmur2(key: bytes) -> int:
    """MurmurHash2, 32 bits, with the seed that Kafka's clients agree on."""
    mask = 0xFFFFFFFF
    m = 0x5BD1E995
    h = (0x9747B28C ^ len(key)) & mask
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    if len(key) > whole:
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)


@pytest.mark.parametrize("name", CLIENTS)
def test_the_key_picks_the_partition_by_murmur2_in_every_client(
    clients: ClientPool, new_topic: Callable[..., str], name: str
):
    topic = new_topic(PARTITIONS)
    places = clients[name].produce(topic, [Message(key=key, value=b"v") for key in KEYS])
    expected = [(murmur2(key) & 0x7FFFFFFF) % PARTITIONS for key in KEYS]
    assert [place.partition for place in places] == expected


def test_records_of_one_key_from_all_clients_share_a_partition(
    clients: ClientPool, new_topic: Callable[..., str]
):
    topic = new_topic(PARTITIONS)
    for name in CLIENTS:
        clients[name].produce(topic, [Message(key=b"order-17", value=name.encode())])
    partition = (murmur2(b"order-17") & 0x7FFFFFFF) % PARTITIONS
    found = clients["librdkafka"].read(topic, {partition: 0}, len(CLIENTS))
    assert [record.value.decode() for record in found] == list(CLIENTS)
