"""How a channel is encrypted and authenticated: TLS, SASL PLAIN and SCRAM (RFC 5802) for clients.

The messages are made here, pure; `Channel` carries them. With SCRAM, a server that does not
know the password is refused, too: the proof is mutual.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.client.connect.certificate import load_certificate
from headrace.errors import RequestError
from headrace.wire import ErrorCode

__all__ = ["MECHANISMS", "Security", "authenticate"]

PLAIN = "PLAIN"
_HASHES = {"SCRAM-SHA-512": "sha512", "SCRAM-SHA-256": "sha256"}
MECHANISMS = (*_HASHES, PLAIN)
# Fewer would not protect the password; more could be used to keep a client busy.
_ITERATIONS = range(4096, 10_000_001)

Exchange = Callable[[bytes], bytes]
"""Sends one message of the dialogue, and returns the server's response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """`tls`: how to verify the server, and the client's certificate; None for no encryption.

    `user` is empty if nobody logs in.
    """

    tls: ssl.SSLContext | None = None
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "Security":
        """From the properties of a librdkafka client; raises ConfigError on an unusable certificate."""
        encrypted = properties.get("security.protocol", "").endswith("SSL")
        return cls(
            tls=_context(properties) if encrypted else None,
            mechanism=properties.get("sasl.mechanism", ""),
            user=properties.get("sasl.username", ""),
            password=properties.get("sasl.password", ""),
        )


def _context(properties: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=properties.get("ssl.ca.location"))
    if "ssl.certificate.location" in properties:
        load_certificate(context, properties["ssl.certificate.location"], properties["ssl.key.location"])
    return context


def authenticate(security: Security, exchange: Exchange) -> None:
    """Logs in; with SCRAM, also verifies that the server knows the password. Raises RequestError."""
    if security.mechanism == PLAIN:
        exchange(f"\0{security.user}\0{security.password}".encode())
        return
    hash_name = _HASHES.get(security.mechanism)
    if hash_name is None:
        raise _refused(f"{security.mechanism or 'no mechanism'} is not one of {', '.join(MECHANISMS)}")
    name = security.user.replace("=", "=3D").replace(",", "=2C")
    own = f"n={name},r={secrets.token_urlsafe(24)}"
    first = exchange(f"n,,{own}".encode()).decode(errors="replace")
    final, expected = _proof(security.password, hash_name, own, first)
    if not hmac.compare_digest(_field(exchange(final).decode(errors="replace"), "v"), expected):
        raise _refused("the server did not prove that it knows the password; is it the right server?")


def _proof(password: str, hash_name: str, own: str, first: str) -> tuple[bytes, bytes]:
    """The client's final message, and the signature that only the right server can send."""
    salt, iterations = _field(first, "s"), _number(first)
    nonce = _text(first, "r")
    if not nonce.startswith(_text(own, "r")):
        raise _refused("the server answered another login")
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    bare = f"c=biws,r={nonce}"
    signed = f"{own},{first},{bare}".encode()
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), signed, hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    final = f"{bare},p={base64.b64encode(proof).decode()}".encode()
    return final, hmac.digest(server_key, signed, hash_name)


def _number(first: str) -> int:
    text = _text(first, "i")
    if not text.isdecimal() or int(text) not in _ITERATIONS:
        raise _refused(f"the server asks for {text[:12]} iterations; not between 4,096 and 10,000,000")
    return int(text)


def _field(message: str, name: str) -> bytes:
    try:
        return base64.b64decode(_text(message, name), validate=True)
    except binascii.Error:
        raise _refused("the server's message is not SCRAM's") from None


def _text(message: str, name: str) -> str:
    for each in message.split(","):
        if each.startswith(f"{name}="):
            return each[2:]
    raise _refused("the server's message is not SCRAM's")


def _refused(why: str) -> RequestError:
    return RequestError(f"login: {why}", code=ErrorCode.sasl_authentication_failed)
