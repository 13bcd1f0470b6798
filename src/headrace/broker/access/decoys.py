"""Credentials that are made up, for names that nobody has: they look as those of the users do.

A server that said other iterations, or a salt of another length, for unknown names would
tell who exists. So a decoy takes its form from the users there are, each form as often as it
is among them, and keeps it: which one it takes is drawn by the name and the server's secret,
each form with a lot of its own (rendezvous hashing), so that a user who comes or goes changes
the decoys of that user's form only.
"""

import hashlib
import hmac
import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from headrace.broker.access.scram import DEFAULT_ITERATIONS, SALT_BYTES, Credential, Mechanism

__all__ = ["Decoys", "checked_by_password"]

MOST_FORMS = 32  # the most frequent ones; each costs a hash at every login
Credentials = Mapping[str, Mapping[Mechanism, Credential]]

# Kafka's own tools write a random number of 130 bits in letters and digits.
_KAFKA_SALT = re.compile(rb"[0-9a-z]{20,26}")
_KAFKA_SALT_BITS = 130
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_KAFKA = 0


class Form(NamedTuple):
    """What a client can see of a credential."""

    mechanism: Mechanism
    iterations: int
    salt_bytes: int  # or `_KAFKA`: as Kafka's tools make it


class Decoys:
    """Decoys of one set of users. Pure; what it needs to know of the users is counted when it is needed."""

    def __init__(self, users: Credentials, secret: bytes) -> None:
        self._users = users
        self._secret = secret
        self._forms: dict[Mechanism | None, dict[Form, int]] = {}

    def credential(self, mechanism: Mechanism, name: str) -> Credential:
        """What somebody of this name would be challenged with; no password fits it."""
        return self._made(self._drawn(mechanism, name), name)

    def for_password(self, name: str) -> Credential:
        """What a password of this name would be held against, as costly as a user's."""
        return self._made(self._drawn(None, name), name)

    def _drawn(self, mechanism: Mechanism | None, name: str) -> Form:
        forms = self._forms.get(mechanism)
        if forms is None:
            forms = self._forms[mechanism] = self._counted(mechanism)
        return max(forms, key=lambda form: forms[form] / -math.log(self._lot(form, name)))

    def _counted(self, mechanism: Mechanism | None) -> dict[Form, int]:
        """The forms of what users have for a mechanism, or, without one, for passwords."""
        found = (
            checked_by_password(held) if mechanism is None else held.get(mechanism)
            for held in self._users.values()
        )
        counts = Counter(_form(each) for each in found if each is not None)
        usual = Form(mechanism or Mechanism.SCRAM_SHA_256, DEFAULT_ITERATIONS, SALT_BYTES)
        return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:MOST_FORMS]) or {usual: 1}

    def _lot(self, form: Form, name: str) -> float:
        """A number between 0 and 1, neither of them."""
        drawn = int.from_bytes(self._some("form " + " ".join(map(str, form)), name, 8))
        return ((drawn >> 12) + 0.5) / (1 << 52)

    def _made(self, form: Form, name: str) -> Credential:
        mechanism, iterations, salt_bytes = form
        what = f"{mechanism.value} "
        if salt_bytes == _KAFKA:
            number = int.from_bytes(self._some(what + "salt", name, 17)) % (1 << _KAFKA_SALT_BITS)
            salt = _in_letters_and_digits(number)
        else:
            salt = self._some(what + "salt", name, salt_bytes)
        return Credential(
            mechanism=mechanism,
            iterations=iterations,
            salt=salt,
            stored_key=self._some(what + "stored", name, mechanism.key_bytes),
            server_key=self._some(what + "server", name, mechanism.key_bytes),
        )

    def _some(self, what: str, name: str, size: int) -> bytes:
        """Bytes that look random to anyone who does not know the secret, the same each time."""
        key = hmac.digest(self._secret, f"{what}:{name}".encode(), "sha512")
        return hashlib.shake_256(key).digest(size)


def checked_by_password(held: Mapping[Mechanism, Credential]) -> Credential | None:
    """The credential that a password of a user is held against."""
    for mechanism in (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512):
        if mechanism in held:
            return held[mechanism]
    return None


def _form(credential: Credential) -> Form:
    from_kafka = _KAFKA_SALT.fullmatch(credential.salt) is not None
    return Form(credential.mechanism, credential.iterations, _KAFKA if from_kafka else len(credential.salt))


def _in_letters_and_digits(number: int) -> bytes:
    digits = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits.encode()
