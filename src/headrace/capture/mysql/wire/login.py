"""How a server is shown that the password is known: decided from what it asks for, without I/O.

`caching_sha2_password` is what MySQL asks for by default since 8.0, `mysql_native_password` what
MariaDB does. Where a server wants the password itself, it gets it within TLS or on a Unix socket,
or encrypted for its public RSA key, and never in clear.
"""

import hashlib
import secrets

from headrace.capture.mysql.wire.protocol import Body
from headrace.capture.mysql.wire.rsa import encrypt, read_public_key
from headrace.errors import ConfigError

__all__ = ["Login", "native_answer", "sha2_answer"]

_NATIVE, _SHA2, _OLD_SHA256, _CLEAR = (
    "mysql_native_password", "caching_sha2_password", "sha256_password", "mysql_clear_password",
)  # fmt: skip
_OK, _MORE, _SWITCH = 0x00, 0x01, 0xFE
_FAST, _FULL = b"\x03", b"\x04"
_ASK_KEY, _ASK_OLD_KEY = b"\x02", b"\x01"


def native_answer(password: str, scramble: bytes) -> bytes:
    """SHA1(password) xor SHA1(scramble + SHA1(SHA1(password)))."""
    once = hashlib.sha1(password.encode()).digest()  # noqa: S324 - as the plugin does
    twice = hashlib.sha1(once).digest()  # noqa: S324
    mixed = hashlib.sha1(scramble[:20] + twice).digest()  # noqa: S324
    return bytes(a ^ b for a, b in zip(once, mixed, strict=True))


def sha2_answer(password: str, scramble: bytes) -> bytes:
    """SHA256(password) xor SHA256(SHA256(SHA256(password)) + scramble)."""
    once = hashlib.sha256(password.encode()).digest()
    mixed = hashlib.sha256(hashlib.sha256(once).digest() + scramble[:20]).digest()
    return bytes(a ^ b for a, b in zip(once, mixed, strict=True))


class Login:
    """Answers a server until it says that we are in.

    `is_private` says that nobody can listen: TLS, or a Unix socket.
    """

    def __init__(self, user: str, password: str, *, is_private: bool) -> None:
        self._user, self._password, self._is_private = user, password, is_private
        self.plugin, self._scramble = "", b""
        self.is_done = False

    def begin(self, plugin: str, scramble: bytes) -> bytes:
        """The answer to what the greeting asks for; another plugin is asked for later, if need be."""
        self.plugin, self._scramble = plugin, scramble
        if plugin not in (_NATIVE, _SHA2):
            self.plugin = _NATIVE
        return self._first()

    def answer(self, body: bytes) -> bytes | None:
        """The packet to send for what the server says; None if nothing is to be sent.

        Raises ConfigError for what it cannot or may not answer.
        """
        kind = body[0] if body else _OK
        if kind == _OK:
            self.is_done = True
            return None
        if kind == _SWITCH:
            read = Body(body, "a request for a password", 1)
            self.plugin = read.text()
            self._scramble = read.rest().rstrip(b"\0")
            return self._first()
        if kind == _MORE:
            return self._more(body[1:])
        raise ConfigError("the server asks for a way of logging in that is not supported")

    def _first(self) -> bytes:
        if self.plugin in (_NATIVE, _SHA2, _CLEAR, _OLD_SHA256) and not self._password:
            return b"\0" if self.plugin in (_CLEAR, _OLD_SHA256) else b""
        if self.plugin == _NATIVE:
            return native_answer(self._password, self._scramble)
        if self.plugin == _SHA2:
            return sha2_answer(self._password, self._scramble)
        if self.plugin == _OLD_SHA256:
            return self._in_clear() if self._is_private else _ASK_OLD_KEY
        if self.plugin == _CLEAR and self._is_private:
            return self._in_clear()
        raise ConfigError(
            f"the server asks user {self._user} to log in by {self.plugin}, which is not supported"
            f"{' without TLS' if self.plugin == _CLEAR else ''}; give the user a password with "
            f"{_SHA2} (MySQL) or {_NATIVE} (MariaDB)"
        )

    def _more(self, said: bytes) -> bytes | None:
        if said == _FAST:
            return None
        if said == _FULL:
            return self._in_clear() if self._is_private else _ASK_KEY
        if said.startswith(b"-----BEGIN"):
            return encrypt(self._mixed(), read_public_key(said), secrets.token_bytes)
        raise ConfigError(f"the server asks for something of {self.plugin} that is not supported")

    def _in_clear(self) -> bytes:
        return self._password.encode() + b"\0"

    def _mixed(self) -> bytes:
        secret = self._in_clear()
        return bytes(each ^ self._scramble[at % len(self._scramble)] for at, each in enumerate(secret))
