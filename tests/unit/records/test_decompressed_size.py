import math
import random

import pytest
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode

from headrace.records import Codec, decompress
from headrace.records.decompressed_size import expansion_bound

ENCODERS = {
    Codec.GZIP: gzip_encode,
    Codec.SNAPPY: snappy_encode,
    Codec.LZ4: lz4_encode,
    Codec.ZSTD: zstd_encode,
}


@pytest.mark.parametrize("codec", ENCODERS)
@pytest.mark.parametrize("size", [0, 1, 1000, 70_000, 1_000_000])
@pytest.mark.parametrize("kind", ["zeros", "noise", "text"])
def test_nothing_expands_beyond_its_bound(codec, size, kind):
    source = {
        "zeros": bytes(size),
        "noise": random.Random(1).randbytes(size),
        "text": b"a word " * (size // 7),
    }
    packed = bytes(ENCODERS[codec](source[kind]))
    bound = expansion_bound(codec, memoryview(packed))
    assert len(decompress(codec, packed)) <= bound < math.inf
    if codec != Codec.GZIP:
        assert bound <= 2 * size + 8 * 1024 * 1024


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_what_is_not_understood_has_no_bound(codec):
    packed = bytes(ENCODERS[codec](b"value" * 1000))
    for odd in (b"", b"garbage" * 10, packed[:-1], packed + packed, packed + b"x"):
        assert expansion_bound(codec, odd) == math.inf
