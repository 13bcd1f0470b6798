"""Sealed values: text that hides a value from everybody who does not have the key. Pure but for randomness.

```text
sealed:1:BASE64URL( key id, 12 bytes | nonce, 12 bytes | AES-256-GCM of the value as JSON, and its tag )
```

The key id says which key opens it, and nothing of whose it is. It is authenticated with the value.
"""

import base64
import binascii
import hashlib
import hmac
import os
from typing import Any, Final

import orjson

from headrace.errors import ConfigError, CorruptionError

__all__ = [
    "ID_BYTES",
    "KEY_BYTES",
    "derive",
    "is_sealed",
    "key_id_of",
    "open_value",
    "seal_value",
    "unwrap",
    "wrap",
]

PREFIX: Final = "sealed:1:"
ID_BYTES: Final = 12
KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16


def derive(master: bytes, purpose: str, data: bytes = b"") -> bytes:
    """A key, or the name of something, that only those who have the master key can compute."""
    own = hmac.new(master, b"headrace personal " + purpose.encode(), hashlib.sha256).digest()
    return own if not data else hmac.new(own, data, hashlib.sha256).digest()


def wrap(key: bytes, data: bytes, about: bytes) -> bytes:
    """Encrypts bytes; `about` must be the same when they are unwrapped."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + bytes(_aes(key).encrypt(nonce, data, about))


def unwrap(key: bytes, wrapped: bytes, about: bytes) -> bytes:
    """The bytes; ValueError if they are damaged, or another key or `about` was used."""
    from cryptography.exceptions import InvalidTag

    try:
        return bytes(_aes(key).decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], about))
    except InvalidTag:
        raise ValueError("it is damaged, or was encrypted with another key") from None


def is_sealed(value: Any) -> bool:
    """Whether a value looks like a sealed one."""
    return isinstance(value, str) and value.startswith(PREFIX)


def seal_value(key_id: bytes, key: bytes, value: Any) -> str:
    """The sealed form of a value that JSON can hold."""
    hidden = key_id + wrap(key, orjson.dumps(value), PREFIX.encode() + key_id)
    return PREFIX + base64.urlsafe_b64encode(hidden).decode().rstrip("=")


def key_id_of(sealed: str) -> bytes | None:
    """Which key a value was sealed with; None if it is not a sealed value."""
    hidden = _hidden(sealed)
    return None if hidden is None else hidden[:ID_BYTES]


def open_value(key: bytes, sealed: str) -> Any:
    """The value; raises CorruptionError if the text was changed."""
    hidden = _hidden(sealed)
    if hidden is None:
        raise CorruptionError("a sealed value is cut short")
    key_id = hidden[:ID_BYTES]
    try:
        return orjson.loads(unwrap(key, hidden[ID_BYTES:], PREFIX.encode() + key_id))
    except ValueError as error:
        raise CorruptionError(f"a sealed value cannot be opened: {error}") from None


def _hidden(sealed: str) -> bytes | None:
    text = sealed.removeprefix(PREFIX)
    try:
        found = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    return found if len(found) >= ID_BYTES + _NONCE_BYTES + _TAG_BYTES else None


def _aes(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:  # an environment from before this was a dependency
        raise ConfigError(
            "personal fields need the package `cryptography`, which is not installed; install Headrace again"
        ) from None
    return AESGCM(key)
