"""The five codecs of record batches, decompressing into a bounded buffer."""

import zlib
from enum import IntEnum
from typing import Any

from headrace.errors import CorruptionError

__all__ = ["Codec", "TooLarge", "decompress"]

DEFAULT_MAX_BYTES = 256 * 1024 * 1024
XERIAL = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES = 16


class Codec(IntEnum):
    """How the records of a batch are compressed; the value is the attribute's."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TooLarge(CorruptionError):  # noqa: N818 - nothing need be wrong with it but its size
    """Data that expands beyond the bound it was given."""


def decompress(codec: int, data: bytes | memoryview, *, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
    """The plain bytes; raises CorruptionError if they are damaged, TooLarge if they exceed `max_bytes`.

    Never allocates more than about `max_bytes`, whatever the data claims.
    """
    try:
        kind = Codec(codec)
    except ValueError:
        raise CorruptionError(f"unknown codec {codec}; 0 to 4 are none, gzip, snappy, lz4, zstd") from None
    if kind is Codec.NONE:
        return bytes(data)
    if kind is Codec.GZIP:
        return _gunzip(data, max_bytes)
    if kind is Codec.SNAPPY:
        return _unsnap(data, max_bytes)
    return _inflate(kind, data, max_bytes)


def _too_large(kind: Codec, max_bytes: int) -> TooLarge:
    return TooLarge(f"{kind.name.lower()} data expands beyond {max_bytes} bytes; send smaller batches")


def _gunzip(data: bytes | memoryview, max_bytes: int) -> bytes:
    try:
        stream = zlib.decompressobj(wbits=31)
        plain = stream.decompress(data, max_bytes)
    except zlib.error as error:
        raise CorruptionError(f"gzip data is damaged: {error}") from error
    if stream.unconsumed_tail:
        raise _too_large(Codec.GZIP, max_bytes)
    if not stream.eof:
        raise CorruptionError("gzip data ends early")
    return plain


def _unsnap(data: bytes | memoryview, max_bytes: int) -> bytes:
    """Raw snappy, or the block stream that Java's library writes."""
    if bytes(data[:8]) != XERIAL:
        return _unsnap_block(data, max_bytes)
    view, position, blocks, total = memoryview(data), XERIAL_HEADER_BYTES, [], 0
    while position < len(view):
        size = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if size > len(view) - position:
            raise CorruptionError("snappy block ends early")
        blocks.append(_unsnap_block(view[position : position + size], max_bytes - total))
        total += len(blocks[-1])
        position += size
    return b"".join(blocks)


def _unsnap_block(data: bytes | memoryview, max_bytes: int) -> bytes:
    import cramjam

    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > max_bytes:
            raise _too_large(Codec.SNAPPY, max_bytes)
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise CorruptionError(f"snappy data is damaged: {error}") from error


def _inflate(kind: Codec, data: bytes | memoryview, max_bytes: int) -> bytes:
    """lz4 and zstd, into a buffer that grows by four until it holds the plain bytes."""
    import cramjam

    library: Any = cramjam.lz4 if kind is Codec.LZ4 else cramjam.zstd
    capacity = min(max_bytes, max(64 * 1024, 4 * len(data)))
    while True:
        plain = bytearray(capacity)
        try:
            size = library.decompress_into(bytes(data), plain)
            return bytes(memoryview(plain)[:size])
        except cramjam.DecompressionError as error:
            # The library has one error for data that is damaged and for a buffer that is too small.
            if "write whole buffer" not in str(error):
                raise CorruptionError(f"{kind.name.lower()} data is damaged: {error}") from error
        if capacity >= max_bytes:
            raise _too_large(kind, max_bytes)
        capacity = min(max_bytes, capacity * 4)
