"""The client's half of SCRAM-SHA-256 (RFC 5802, RFC 7677), without I/O.

Both sides prove that they know the password; neither sends it. Without channel binding.
"""

import base64
import binascii
import hashlib
import hmac
import stringprep
import unicodedata

from headrace.errors import ConfigError, CorruptionError

__all__ = ["MECHANISM", "ScramClient", "prepared"]

MECHANISM = "SCRAM-SHA-256"

_NO_CHANNEL_BINDING = "n,,"
_MOST_ITERATIONS = 10_000_000  # seconds of work; a server that asks for more wants to keep us busy


class ScramClient:
    """One login: `first`, then `final` for the server's challenge, then `verify` for its proof."""

    def __init__(self, password: str, nonce: str) -> None:
        self._password = prepared(password)
        self._bare = f"n=,r={nonce}"  # the server takes the name from the start-up message
        self._nonce = nonce
        self._server_signature = b""

    def first(self) -> bytes:
        return (_NO_CHANNEL_BINDING + self._bare).encode()

    def final(self, challenge: bytes) -> bytes:
        """The answer to the server's challenge; CorruptionError if that is none."""
        nonce, salt, iterations = self._challenge(challenge)
        salted = hashlib.pbkdf2_hmac("sha256", self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        bound = base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()
        unproven = f"c={bound},r={nonce}"
        signed = ",".join((self._bare, challenge.decode(), unproven)).encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, outcome: bytes) -> None:
        """Raises ConfigError unless the server has shown that it knows the password, too."""
        fields = _fields(outcome)
        try:
            shown = base64.b64decode(fields.get("v", ""), validate=True)
        except binascii.Error:
            shown = b""
        if not self._server_signature or not hmac.compare_digest(shown, self._server_signature):
            raise ConfigError(
                "the server does not know the password that it asked for: it may not be the database that "
                "it claims to be; check host and port, and use sslmode=verify-full"
            )

    def _challenge(self, challenge: bytes) -> tuple[str, bytes, int]:
        fields = _fields(challenge)
        try:
            nonce, salt = fields["r"], base64.b64decode(fields["s"], validate=True)
            iterations = int(fields["i"])
        except (KeyError, ValueError):
            raise CorruptionError("the server's challenge for the password cannot be read") from None
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise CorruptionError("the server's challenge for the password is for another login")
        if not 1 <= iterations <= _MOST_ITERATIONS:
            raise CorruptionError(f"the server asks for {iterations} rounds of hashing the password")
        return nonce, salt, iterations


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError:
        raise CorruptionError("the server's challenge for the password is no text") from None
    return {part[:1]: part[2:] for part in parts if part[1:2] == "="}


def prepared(password: str) -> bytes:
    """The password as SASLprep (RFC 4013) wants it; as it is where that is not allowed, like libpq."""
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each
        for each in password
        if not stringprep.in_table_b1(each)
    )
    normal = unicodedata.normalize("NFKC", mapped)
    return (password if not normal or any(map(_prohibited, normal)) else normal).encode()


def _prohibited(character: str) -> bool:
    tables = (
        *(stringprep.in_table_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3),
        *(stringprep.in_table_c4, stringprep.in_table_c5, stringprep.in_table_c6, stringprep.in_table_c7),
        *(stringprep.in_table_c8, stringprep.in_table_c9, stringprep.in_table_a1),
    )
    return any(within(character) for within in tables)
