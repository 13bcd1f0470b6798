import gzip

import cramjam
import pytest
from aiokafka.codec import lz4_encode, snappy_encode, zstd_encode

from headrace.errors import CorruptionError
from headrace.records import Codec, decompress

PLAIN = b"the quick brown fox " * 1000
PACKED = {
    Codec.NONE: PLAIN,
    Codec.GZIP: gzip.compress(PLAIN),
    Codec.SNAPPY: snappy_encode(PLAIN),
    Codec.LZ4: lz4_encode(PLAIN),
    Codec.ZSTD: zstd_encode(PLAIN),
}


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_gives_the_plain_bytes_back(codec):
    assert decompress(codec, PACKED[codec]) == PLAIN
    assert decompress(codec, memoryview(PACKED[codec])) == PLAIN


def test_snappy_without_the_java_framing_is_read_too():
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(PLAIN))) == PLAIN


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_data_that_expands_beyond_the_bound_is_refused(codec):
    with pytest.raises(CorruptionError, match="beyond"):
        decompress(codec, PACKED[codec], max_bytes=len(PLAIN) - 1)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_data_that_fits_the_bound_exactly_passes(codec):
    assert decompress(codec, PACKED[codec], max_bytes=len(PLAIN)) == PLAIN


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_cut_data_is_refused(codec):
    for length in (0, 1, 7, 17, len(PACKED[codec]) // 2):
        with pytest.raises(CorruptionError):
            decompress(codec, PACKED[codec][:length])


def test_a_small_bomb_is_refused_without_much_memory():
    bomb = bytes(cramjam.zstd.compress(bytes(300_000_000)))
    assert len(bomb) < 100_000
    with pytest.raises(CorruptionError, match="beyond"):
        decompress(Codec.ZSTD, bomb, max_bytes=1_000_000)


def test_an_unknown_codec_is_refused():
    with pytest.raises(CorruptionError, match="unknown codec 5"):
        decompress(5, b"")
