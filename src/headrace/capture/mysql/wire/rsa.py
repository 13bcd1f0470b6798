"""A password for a server's public RSA key, as MySQL's plugins want it: PKCS #1 OAEP with SHA-1. Pure."""

import base64
import hashlib
from collections.abc import Callable

from headrace.errors import CorruptionError

__all__ = ["encrypt", "read_public_key"]

_SEQUENCE, _INTEGER, _BIT_STRING = 0x30, 0x02, 0x03
_HASH_BYTES = 20


def read_public_key(pem: bytes) -> tuple[int, int]:
    """Modulus and exponent of a key in PEM; CorruptionError if this is none."""
    try:
        body = b"".join(line for line in pem.split(b"\n") if line and not line.startswith(b"-----"))
        outer, _ = _element(base64.b64decode(body, validate=True), _SEQUENCE)
        inner = outer
        if outer[0] == _SEQUENCE:  # with the name of the algorithm before it
            _, rest = _element(outer, _SEQUENCE)
            bits, _ = _element(rest, _BIT_STRING)
            inner, _ = _element(bits[1:], _SEQUENCE)
        modulus, rest = _element(inner, _INTEGER)
        exponent, _ = _element(rest, _INTEGER)
    except (ValueError, IndexError):
        raise CorruptionError("the server sends a public key that cannot be read") from None
    return int.from_bytes(modulus, "big"), int.from_bytes(exponent, "big")


def _element(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """The contents of the DER element at the beginning, and what comes behind it."""
    if data[0] != tag:
        raise ValueError("another element")
    length, at = data[1], 2
    if length & 0x80:
        size = length & 0x7F
        length, at = int.from_bytes(data[2 : 2 + size], "big"), 2 + size
    if at + length > len(data):
        raise ValueError("too short")
    return data[at : at + length], data[at + length :]


def encrypt(message: bytes, key: tuple[int, int], random_bytes: Callable[[int], bytes]) -> bytes:
    """The message for the owner of the key."""
    modulus, exponent = key
    size = (modulus.bit_length() + 7) // 8
    room = size - 2 * _HASH_BYTES - 2
    if len(message) > room:
        raise CorruptionError(f"the server's public key is too small for {len(message)} bytes")
    block = hashlib.sha1(b"").digest() + bytes(room - len(message)) + b"\x01" + message  # noqa: S324
    seed = random_bytes(_HASH_BYTES)
    masked = _xor(block, _mask(seed, len(block)))
    whole = b"\0" + _xor(seed, _mask(masked, _HASH_BYTES)) + masked
    return pow(int.from_bytes(whole, "big"), exponent, modulus).to_bytes(size, "big")


def _mask(seed: bytes, length: int) -> bytes:
    made = b""
    for counter in range(length // _HASH_BYTES + 1):
        made += hashlib.sha1(seed + counter.to_bytes(4, "big")).digest()  # noqa: S324 - as the plugin does
    return made[:length]


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
