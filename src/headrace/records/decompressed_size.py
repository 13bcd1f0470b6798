"""How large compressed records can become at most, told without decompressing them.

The frames of lz4 and zstd are sequences of blocks with a bounded plain size each, and
snappy says its sizes; so a bound follows from a few headers. For gzip it is the
format's largest ratio. A frame that is not understood has no bound.
"""

import math

from headrace.records.codec import XERIAL, XERIAL_HEADER_BYTES, Codec

__all__ = ["expansion_bound"]

_GZIP_RATIO = 1032
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK_BYTES = 128 * 1024
_LZ4_MAGIC = 0x184D2204
_LZ4_BLOCK_BYTES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}


def expansion_bound(codec: int, data: bytes | memoryview) -> float:
    """Bytes that the data cannot expand beyond; infinite if that is not known."""
    bounds = {Codec.GZIP: _gzip, Codec.SNAPPY: _snappy, Codec.LZ4: _lz4, Codec.ZSTD: _zstd}
    try:
        return len(data) if codec == Codec.NONE else bounds[Codec(codec)](data)
    except (IndexError, KeyError, ValueError):
        return math.inf


def _gzip(data: bytes | memoryview) -> float:
    return len(data) * _GZIP_RATIO


def _snappy(data: bytes | memoryview) -> float:
    if bytes(data[:8]) != XERIAL:
        return _snappy_length(data, 0)
    total, position = 0, XERIAL_HEADER_BYTES
    while position < len(data):
        total += _snappy_length(data, position + 4)
        position += 4 + int.from_bytes(data[position : position + 4], "big")
    return total


def _snappy_length(data: bytes | memoryview, position: int) -> int:
    value = shift = 0
    while (byte := data[position]) > 127 and shift < 28:
        value |= (byte & 127) << shift
        shift += 7
        position += 1
    return value | byte << shift


def _little(data: bytes | memoryview, position: int, size: int) -> int:
    if position + size > len(data):
        raise IndexError("the frame ends early")
    return int.from_bytes(data[position : position + size], "little")


def _lz4(data: bytes | memoryview) -> float:
    if _little(data, 0, 4) != _LZ4_MAGIC:
        return math.inf
    flags, most = data[4], _LZ4_BLOCK_BYTES[data[5] >> 4 & 7]
    position = 7 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    total = 0
    while size := _little(data, position, 4):
        total += most
        position += 4 + (size & 0x7FFFFFFF) + (4 if flags & 16 else 0)
    end = position + 4 + (4 if flags & 4 else 0)
    return total if end == len(data) else math.inf


def _zstd(data: bytes | memoryview) -> float:
    if _little(data, 0, 4) != _ZSTD_MAGIC:
        return math.inf
    flags = data[4]
    single = flags >> 5 & 1
    content_size = (single, 2, 4, 8)[flags >> 6]
    position = 5 + (1 - single) + (0, 1, 2, 4)[flags & 3] + content_size
    total, last = 0, 0
    while not last:
        block = _little(data, position, 3)
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        total += _ZSTD_BLOCK_BYTES if kind == 2 else size
        position += 3 + (1 if kind == 1 else size)
    end = position + (4 if flags & 4 else 0)
    return total if end == len(data) else math.inf
