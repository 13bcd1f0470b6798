"""How a client authenticates to a log, and verifies it: everything but the password.

The password is read where a connection is made, from a file or from the environment of that
process. So it is in no settings, plan, checkpoint or command line, and anything that holds an
`Identity` may be stored or sent to a worker.
"""

import os
import ssl
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from headrace.client.connect.certificate import load_certificate
from headrace.client.connect.login import MECHANISMS, Security
from headrace.config import setting
from headrace.errors import ConfigError
from headrace.secret_references import is_reference, resolve

__all__ = ["PASSWORD_VARIABLE", "SYSTEM", "Identity", "read_password"]

PASSWORD_VARIABLE = "HEADRACE_PASSWORD"  # noqa: S105 - the name of one
SYSTEM = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Without `user` nobody logs in, without `tls_ca` connections are not encrypted.

    A client certificate identifies the client by itself, or is required in addition to a user.
    """

    user: str = setting("", "User to log in as; empty: no login.")
    password_file: str = setting(
        "",
        "File whose first line is the user's password, or env:NAME or file:PATH, read by the process that "
        f"connects; empty: taken from {PASSWORD_VARIABLE}.",
    )
    sasl_mechanism: str = setting("SCRAM-SHA-512", f"How to log in: {', '.join(MECHANISMS)}.")
    tls_ca: str = setting(
        "",
        f"File of CA certificates for verifying the broker; turns TLS on. `{SYSTEM}`: this machine's.",
    )
    client_certificate: str = setting(
        "", "PEM file of the client's certificate and its chain; needs client_key and tls_ca."
    )
    client_key: str = setting("", "PEM file of the client certificate's private key, without a password.")

    def identity_fields(self) -> dict[str, Any]:
        """Only these fields, of any settings that include them."""
        return {each.name: getattr(self, each.name) for each in fields(Identity)}

    def environment(self) -> dict[str, str]:
        """The variables that give a `headrace` process the same identity; empty ones unset others."""
        return {f"HEADRACE_{name.upper()}": value for name, value in self.identity_fields().items()}

    def client_properties(self) -> dict[str, str]:
        """The properties for a client of librdkafka, the password included; raises ConfigError."""
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
        """The same for a channel of our own; None without encryption and login."""
        properties = self.client_properties()
        return Security.of(properties) if properties else None

    def _check_certificate(self) -> None:
        if not (self.client_certificate and self.client_key):
            missing = "client_key" if self.client_certificate else "client_certificate"
            raise ConfigError(
                f"{missing} is missing; a client certificate needs both, the certificate and its key"
            )
        if not self.tls_ca:
            raise ConfigError(
                "client_certificate needs TLS: give tls_ca, the CA certificates for verifying the broker"
                f" ({SYSTEM}: this machine's)"
            )
        load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), self.client_certificate, self.client_key)

    def _protocol(self) -> dict[str, str]:
        if self.user:
            return {"security.protocol": "SASL_SSL" if self.tls_ca else "SASL_PLAINTEXT"}
        return {"security.protocol": "SSL"} if self.tls_ca else {}

    def _password(self) -> str:
        if is_reference(self.password_file):
            return resolve(self.password_file, f"the password of {self.user}")
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
