"""Who a client is towards a log, and by what it trusts it: everything but the password.

The password is read where a connection is made, from a file or from the environment of
that very process. So it is in no settings, no plan, no checkpoint and no command line, and
whatever holds an `Identity` may be written down and sent to a worker.
"""

import os
import ssl
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from headrace.client.certificate import load_certificate
from headrace.client.login import MECHANISMS, Security
from headrace.config import setting
from headrace.errors import ConfigError

__all__ = ["PASSWORD_VARIABLE", "SYSTEM", "Identity", "read_password"]

PASSWORD_VARIABLE = "HEADRACE_PASSWORD"  # noqa: S105 - the name of one
SYSTEM = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Without `user` nobody logs in, without `tls_ca` connections are in the open.

    A client certificate says who one is by itself, or lets a user in where one is wanted, too.
    """

    user: str = setting("", "User to log in as; empty: nobody logs in.")
    password_file: str = setting(
        "", f"File whose first line is the user's password; empty: {PASSWORD_VARIABLE} has it."
    )
    sasl_mechanism: str = setting("SCRAM-SHA-512", f"How to log in: {', '.join(MECHANISMS)}.")
    tls_ca: str = setting(
        "", f"File of certificates to trust the broker by; turns TLS on. `{SYSTEM}`: this machine's."
    )
    client_certificate: str = setting(
        "", "PEM file of the client's certificate and its chain, to be known by; needs client_key and tls_ca."
    )
    client_key: str = setting("", "PEM file of the client certificate's private key, without a password.")

    def identity_fields(self) -> dict[str, Any]:
        """These fields alone, of whatever settings they are part of."""
        return {each.name: getattr(self, each.name) for each in fields(Identity)}

    def environment(self) -> dict[str, str]:
        """The variables by which a `headrace` process becomes the same; empty ones take others back."""
        return {f"HEADRACE_{name.upper()}": value for name, value in self.identity_fields().items()}

    def client_properties(self) -> dict[str, str]:
        """What a client of librdkafka needs for it, the password included; raises ConfigError."""
        found = {}
        if self.tls_ca and self.tls_ca != SYSTEM:
            if not Path(self.tls_ca).is_file():
                raise ConfigError(f"tls_ca: there is no file {self.tls_ca}; give one in PEM")
            found["ssl.ca.location"] = self.tls_ca
        if self.client_certificate or self.client_key:
            self._check_certificate()
            found["ssl.certificate.location"] = self.client_certificate
            found["ssl.key.location"] = self.client_key
        if self.user:
            mechanism = self.sasl_mechanism.upper()
            if mechanism not in MECHANISMS:
                raise ConfigError(f"sasl_mechanism {mechanism}: use one of {', '.join(MECHANISMS)}")
            found["sasl.mechanism"] = mechanism
            found["sasl.username"] = self.user
            found["sasl.password"] = self._password()
        return found | self._protocol()

    def security(self) -> Security | None:
        """The same for a channel of our own; None to speak in the open, as nobody."""
        properties = self.client_properties()
        return Security.of(properties) if properties else None

    def _check_certificate(self) -> None:
        if not (self.client_certificate and self.client_key):
            missing = "client_key" if self.client_certificate else "client_certificate"
            raise ConfigError(
                f"{missing} is missing; to be known by a certificate takes both, it and its key"
            )
        if not self.tls_ca:
            raise ConfigError(
                "client_certificate needs TLS: give tls_ca, certificates to trust the broker by"
                f" ({SYSTEM}: this machine's)"
            )
        load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), self.client_certificate, self.client_key)

    def _protocol(self) -> dict[str, str]:
        if self.user:
            return {"security.protocol": "SASL_SSL" if self.tls_ca else "SASL_PLAINTEXT"}
        return {"security.protocol": "SSL"} if self.tls_ca else {}

    def _password(self) -> str:
        if self.password_file:
            return read_password(self.password_file)
        if PASSWORD_VARIABLE not in os.environ:
            raise ConfigError(
                f"user {self.user} needs a password: set {PASSWORD_VARIABLE} or give a password file"
            )
        return os.environ[PASSWORD_VARIABLE]


def read_password(path: str) -> str:
    """The first line of a file; raises ConfigError."""
    try:
        password = Path(path).read_text().partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ConfigError(f"the password file {path} cannot be read: {reason}") from None
    if not password:
        raise ConfigError(f"the password file {path} is empty; its first line is the password")
    return password
