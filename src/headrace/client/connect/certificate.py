"""The certificate and key of a client: PEM files that are checked before use.

Error messages name the files and never their contents.
"""

import re
import ssl
from pathlib import Path

from headrace.errors import ConfigError

__all__ = ["load_certificate"]

_CERTIFICATE = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----")
_KEY = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----")


def load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Makes connections of the context present the certificate; raises ConfigError naming the file."""
    _require_pem("client_certificate", certificate, _CERTIFICATE)
    _require_pem("client_key", key, _KEY)

    def no_password() -> str:  # or OpenSSL would ask on the terminal
        raise ConfigError(f"client_key ({key}) has a password; give a key without one, for its owner only")

    both = f"client_certificate ({certificate}) and client_key ({key})"
    try:
        context.load_cert_chain(certificate, key, password=no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"{both} do not belong together; give the key of this certificate") from None
        reason = (error.reason or "damaged").lower().replace("_", " ")
        raise ConfigError(f"{both} cannot be used: {reason}; give a certificate and its key in PEM") from None


def _require_pem(setting: str, path: str, beginning: re.Pattern[bytes]) -> None:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{setting} ({path}) cannot be read: {error.strerror}; give a PEM file that can be"
        ) from None
    if not beginning.search(content):
        what = "certificate" if beginning is _CERTIFICATE else "private key"
        raise ConfigError(f"{setting} ({path}) is not a PEM file with a {what}; give one")
