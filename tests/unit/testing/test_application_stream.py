"""Keys find the partitions that Kafka's own clients send them to."""

import pytest

from headrace.testing.topic_feed import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "found"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafkas_own_tests(key, found):
    assert murmur2(key) == found % (1 << 32)
    assert partition_of(key, 4) == (found & 0x7FFFFFFF) % 4
