"""Receipts: signed statements of what was forgotten, when and where. Pure.

A receipt is JSON, signed with Ed25519 over all members but the signature, in the order of their names.
The signing key is derived from the master key, so a receipt can be checked by anybody who has that, or who
was given the public key.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from headrace.errors import CorruptionError, RequestError

__all__ = ["Receipt", "check_receipt", "public_key", "sign_receipt"]

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What was forgotten; `left` are records in the clear that could not be removed."""

    subject: str
    forgotten_at: str
    keys: tuple[str, ...]
    store: str
    steps: tuple[str, ...]
    left: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        return {
            "receipt": FORMAT,
            "subject": self.subject,
            "forgotten_at": self.forgotten_at,
            "keys": list(self.keys),
            "store": self.store,
            "steps": list(self.steps),
            "left": list(self.left),
        }


def sign_receipt(receipt: Receipt, signing: bytes) -> dict[str, Any]:
    """The receipt as it is written."""
    fields = {**receipt.fields(), "public_key": public_key(signing)}
    return {**fields, "signature": _private(signing).sign(_signed(fields)).hex()}


def check_receipt(found: Any, known_key: str) -> Receipt:
    """The receipt, if it was signed with the private part of this public key.

    Raises CorruptionError if it was changed, and RequestError if it is no receipt.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not isinstance(found, Mapping) or found.get("receipt") != FORMAT or "signature" not in found:
        raise RequestError("this is not a receipt of `headrace forget`")
    fields = {name: each for name, each in found.items() if name != "signature"}
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(known_key))
        key.verify(bytes.fromhex(str(found["signature"])), _signed(fields))
    except (InvalidSignature, ValueError):
        raise CorruptionError(
            "the signature does not hold: the receipt was changed, or signed with another master key"
        ) from None
    return Receipt(
        subject=fields["subject"],
        forgotten_at=fields["forgotten_at"],
        keys=_texts(fields["keys"]),
        store=fields["store"],
        steps=_texts(fields["steps"]),
        left=_texts(fields["left"]),
    )


def public_key(signing: bytes) -> str:
    """The public part, by which others check receipts."""
    return str(_private(signing).public_key().public_bytes_raw().hex())


def _private(signing: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(signing)


def _signed(fields: Mapping[str, Any]) -> bytes:
    return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)


def _texts(found: Sequence[Any]) -> tuple[str, ...]:
    return tuple(str(each) for each in found)
