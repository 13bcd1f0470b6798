"""Which password a server is given, and how: decided from what it asks for, without I/O.

SCRAM-SHA-256 is what PostgreSQL asks for by default since version 14. MD5, the default of 13,
is answered too. A password in clear is sent within TLS only.
"""

import hashlib
import secrets

from headrace.capture.postgres.wire.protocol import Body, frame
from headrace.capture.postgres.wire.scram import MECHANISM, ScramClient
from headrace.errors import ConfigError, CorruptionError

__all__ = ["Login"]

_OK, _CLEAR, _MD5, _SASL, _SASL_CONTINUE, _SASL_FINAL = 0, 3, 5, 10, 11, 12
_NONCE_BYTES = 18


class Login:
    """Answers the server's requests for authentication, one after the other."""

    def __init__(self, user: str, password: str, *, encrypted: bool) -> None:
        self._user, self._password, self._encrypted = user, password, encrypted
        self._scram: ScramClient | None = None
        self._unproven = False

    def answer(self, body: bytes) -> bytes | None:
        """The frame to send for an Authentication message; None if nothing is to be sent.

        Raises ConfigError for what it cannot or may not answer.
        """
        read = Body(body, "a request for a password")
        kind = read.unsigned(4)
        match kind:
            case _ if kind == _OK:
                self._require_proof()
                return None
            case _ if kind == _CLEAR:
                return self._clear()
            case _ if kind == _MD5:
                return frame(b"p", self._md5(read.take(4)) + b"\0")
            case _ if kind == _SASL:
                return self._first(read)
            case _ if kind == _SASL_CONTINUE and self._scram:
                return frame(b"p", self._scram.final(read.rest()))
            case _ if kind == _SASL_FINAL and self._scram:
                self._scram.verify(read.rest())
                self._unproven = False
                return None
        raise ConfigError(
            f"the server asks for a way of logging in that is not supported (number {kind}); use "
            "scram-sha-256 in pg_hba.conf for this user"
        )

    def _require_proof(self) -> None:
        if self._unproven:
            raise CorruptionError("the server ends the login without showing that it knows the password")

    def _known(self) -> str:
        if not self._password:
            raise ConfigError(
                f"the server asks user {self._user} for a password; add ?password=env:NAME or "
                "password=file:PATH to the URL"
            )
        return self._password

    def _clear(self) -> bytes:
        if not self._encrypted:
            raise ConfigError(
                "the server asks for the password in clear over a connection without TLS; use scram-sha-256 "
                "in pg_hba.conf, or sslmode=verify-full"
            )
        return frame(b"p", self._known().encode() + b"\0")

    def _md5(self, salt: bytes) -> bytes:
        inner = _md5(self._known().encode() + self._user.encode())
        return b"md5" + _md5(inner + salt)

    def _first(self, read: Body) -> bytes:
        offered = []
        while name := read.text():
            offered.append(name)
        if MECHANISM not in offered:
            raise ConfigError(
                f"the server offers {', '.join(offered) or 'nothing'}, of which none is {MECHANISM}"
            )
        self._scram = ScramClient(self._known(), secrets.token_urlsafe(_NONCE_BYTES))
        self._unproven = True
        first = self._scram.first()
        return frame(b"p", MECHANISM.encode() + b"\0" + len(first).to_bytes(4, "big") + first)


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).hexdigest().encode()
