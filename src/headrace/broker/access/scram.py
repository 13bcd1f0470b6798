"""SCRAM (RFC 5802 and 7677) as a server speaks it, pure: messages in, messages out.

What is stored of a password is salted and iterated, and does not let its
holder log in. Names that do not exist get a made-up credential (`decoys`), so that
the exchange takes as long and looks the same until its last step. Comparisons
take the same time wherever the difference is.
"""

import base64
import binascii
import dataclasses
import hashlib
import hmac
from enum import IntEnum

__all__ = [
    "DEFAULT_ITERATIONS",
    "LEAST_ITERATIONS",
    "MOST_ITERATIONS",
    "Credential",
    "Mechanism",
    "RefusedError",
    "ScramExchange",
    "credential_from_password",
    "credential_from_salted",
    "is_password",
]

LEAST_ITERATIONS, DEFAULT_ITERATIONS, MOST_ITERATIONS = 4096, 16384, 1_000_000
SALT_BYTES = 24


class Mechanism(IntEnum):
    """Kafka's numbers of the two kinds of SCRAM."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        return "sha256" if self is Mechanism.SCRAM_SHA_256 else "sha512"

    @property
    def key_bytes(self) -> int:
        return hashlib.new(self.hash_name).digest_size


class RefusedError(Exception):
    """The exchange failed. Its message names no secret and does not say whether the user exists."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What is kept of a user's password for one mechanism. Its repr shows none of it."""

    mechanism: Mechanism
    iterations: int
    salt: bytes = dataclasses.field(repr=False)
    stored_key: bytes = dataclasses.field(repr=False)
    server_key: bytes = dataclasses.field(repr=False)


def credential_from_password(
    mechanism: Mechanism, password: str, salt: bytes, iterations: int = DEFAULT_ITERATIONS
) -> Credential:
    """Takes some milliseconds of processor time; the interpreter is free meanwhile."""
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)
    return credential_from_salted(mechanism, salted, salt, iterations)


def credential_from_salted(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """From the salted password, which is what administrators' clients send."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
    return Credential(
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        stored_key=hashlib.new(mechanism.hash_name, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", mechanism.hash_name),
    )


def is_password(credential: Credential, password: str) -> bool:
    """Whether the password is the user's; as costly as making the credential."""
    made = credential_from_password(credential.mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(made.stored_key, credential.stored_key)


class ScramExchange:
    """One login: `first` answers the client's first message, `final` its last.

    The caller looks the credential up between the two steps of `first`:
    `user = begin(message)`, then `challenge(credential)`.
    """

    def __init__(self, mechanism: Mechanism, nonce: str) -> None:
        self.mechanism = mechanism
        self._server_nonce = nonce
        self._gs2_header = b""
        self._client_first_bare = ""
        self._nonce = ""
        self._server_first = ""
        self._credential: Credential | None = None

    def begin(self, message: bytes) -> str:
        """The name of the user who wants to log in; raises RefusedError."""
        binding, authorisation_id, bare = _three_parts(_text(message))
        if binding not in ("n", "y"):
            raise RefusedError("channel binding is not offered")
        fields = _fields(bare)
        user = _user_name(fields.get("n", ""))
        if authorisation_id and authorisation_id != f"a={fields['n']}":
            raise RefusedError("acting for somebody else is not offered")
        if "m" in fields or fields.get("tokenauth") == "true":
            raise RefusedError("the client asks for an extension that is not offered")
        if not fields.get("r"):
            raise RefusedError("the client's nonce is missing")
        self._gs2_header = f"{binding},{authorisation_id},".encode()
        self._client_first_bare = bare
        self._nonce = fields["r"] + self._server_nonce
        return user

    def challenge(self, credential: Credential) -> bytes:
        """The server's first message."""
        self._credential = credential
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def final(self, message: bytes) -> bytes:
        """The server's last message, which proves that it knows the user; raises RefusedError."""
        assert self._credential is not None, "challenge comes first"
        without_proof, comma, _ = _text(message).rpartition(",p=")
        fields = _fields(_text(message))
        if not comma or not hmac.compare_digest(_decoded(fields.get("c", "")), self._gs2_header):
            raise RefusedError("the client's last message does not fit its first")
        if not hmac.compare_digest(fields.get("r", "").encode(), self._nonce.encode()):
            raise RefusedError("the client's last message has another nonce")
        signed = f"{self._client_first_bare},{self._server_first},{without_proof}".encode()
        self._check_proof(_decoded(fields.get("p", "")), signed)
        signature = hmac.digest(self._credential.server_key, signed, self.mechanism.hash_name)
        return b"v=" + base64.b64encode(signature)

    def _check_proof(self, proof: bytes, signed: bytes) -> None:
        assert self._credential is not None
        stored = self._credential.stored_key
        if len(proof) != len(stored):
            raise RefusedError("the client's proof has the wrong length")
        signature = hmac.digest(stored, signed, self.mechanism.hash_name)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self.mechanism.hash_name, client_key).digest(), stored):
            raise RefusedError("wrong user or password")


def _text(message: bytes) -> str:
    try:
        return bytes(message).decode()
    except UnicodeDecodeError:
        raise RefusedError("a message that is not text") from None


def _three_parts(text: str) -> tuple[str, str, str]:
    parts = text.split(",", 2)
    if len(parts) != 3:
        raise RefusedError("not a first message of SCRAM")
    return parts[0], parts[1], parts[2]


def _fields(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or name in found:
            raise RefusedError("not a message of SCRAM")
        found[name] = value
    return found


def _user_name(escaped: str) -> str:
    rest = escaped.replace("=2C", "").replace("=3D", "")
    if not escaped or "=" in rest:
        raise RefusedError("the user's name is missing or badly escaped")
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RefusedError("a field that is not base64") from None
