"""Signatures of Standard Webhooks (version v1: HMAC-SHA256 with a shared secret). Pure.

The signed text is `<webhook-id>.<webhook-timestamp>.<body>`. While a secret is being replaced
there are several, and the header has a signature by each, so that receivers can switch over
one by one.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from headrace.errors import ConfigError

__all__ = ["parse_secrets", "signature", "signed_headers"]

_PREFIX = "whsec_"
_MIN_BYTES, _MAX_BYTES = 24, 64


def parse_secrets(text: str, name: str) -> tuple[bytes, ...]:
    """Keys from one or more `whsec_…`, separated by spaces; raises ConfigError, which names only `name`."""
    found = tuple(_key(each, name) for each in text.split())
    if not found:
        raise ConfigError(f"{name} is empty; it must hold a secret, such as {_PREFIX} and 32 bytes in base64")
    return found


def _key(text: str, name: str) -> bytes:
    wanted = f"{_PREFIX} and {_MIN_BYTES} to {_MAX_BYTES} bytes in base64"
    if not text.startswith(_PREFIX):
        raise ConfigError(f"{name} does not hold a Standard Webhooks secret: {wanted}")
    given = text.removeprefix(_PREFIX)
    try:
        key = base64.b64decode(given + "=" * (-len(given) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{name} holds a secret that is not base64; it must be {wanted}") from None
    if not _MIN_BYTES <= len(key) <= _MAX_BYTES:
        raise ConfigError(f"{name} holds a secret of {len(key)} bytes; it must be {wanted}")
    return key


def signature(secrets: Sequence[bytes], message_id: str, timestamp_s: int, body: bytes) -> str:
    """The value of `webhook-signature`: one signature for each secret, separated by spaces."""
    content = f"{message_id}.{timestamp_s}.".encode() + body
    digests = (hmac.new(secret, content, hashlib.sha256).digest() for secret in secrets)
    return " ".join(f"v1,{base64.b64encode(each).decode()}" for each in digests)


def signed_headers(
    secrets: Sequence[bytes], message_id: str, timestamp_s: int, body: bytes
) -> dict[str, str]:
    """The three headers that a receiver verifies."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": signature(secrets, message_id, timestamp_s, body),
    }
