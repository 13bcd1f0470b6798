"""Encrypted connections: the server's TLS context, and who a client's certificate says it is."""

import ssl
from collections.abc import Mapping
from typing import Any

from headrace.errors import ConfigError

__all__ = ["principal_of", "server_context"]

_SHORT = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


def server_context(certificate: str, key: str, client_ca: str = "") -> ssl.SSLContext:
    """TLS 1.2 or newer; with `client_ca`, clients may show a certificate that it signed.

    Raises ConfigError that names the file. Nothing of the key's text is in the message.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load("tls_certificate and tls_key", f"{certificate}, {key}", _chain, context, certificate, key)
    if client_ca:
        _load("tls_client_ca", client_ca, _authorities, context, client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.sslobject_class = _Outspoken
    return context


class _Outspoken(ssl.SSLObject):
    """Tells a client that its certificate is refused, as TLS has an alert for it.

    The event loops drop what is left to send when a handshake fails. So it is said to wait
    for more, which sends the alert, and to fail with whatever comes next; the time for a
    handshake bounds that.
    """

    _failure: ssl.SSLCertVerificationError | None = None

    def do_handshake(self) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            super().do_handshake()
        except ssl.SSLCertVerificationError as error:
            self._failure = error
            raise ssl.SSLWantReadError from error


def _chain(context: ssl.SSLContext, certificate: str, key: str) -> None:
    # Without this an encrypted key would make OpenSSL ask on the terminal.
    context.load_cert_chain(certificate, key or None, password=_no_password)


def _no_password() -> str:
    raise ConfigError(
        "tls_key is encrypted with a password; give a key without one, readable by the broker only"
    )


def _authorities(context: ssl.SSLContext, path: str) -> None:
    context.load_verify_locations(path)


def _load(setting: str, path: str, call: Any, *arguments: Any) -> None:
    try:
        call(*arguments)
    except ssl.SSLError as error:
        reason = (error.reason or "not PEM").lower().replace("_", " ")
        raise ConfigError(
            f"{setting} ({path}) cannot be used: {reason}; give PEM files that belong together"
        ) from None
    except OSError as error:
        raise ConfigError(f"{setting} ({path}) cannot be read: {error.strerror}") from None


def principal_of(certificate: Mapping[str, Any]) -> str:
    """The principal of a verified certificate: its subject, written as RFC 2253 (and Kafka) does."""
    subject: tuple[tuple[tuple[str, str], ...], ...] = certificate.get("subject", ())
    parts = [
        "+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in rdn) for rdn in subject
    ]
    return "User:" + ",".join(reversed(parts))


def _escaped(value: str) -> str:
    text = "".join(f"\\{each}" if each in ',+"\\<>;=' else each for each in value)
    if text[:1] in ("#", " "):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and len(text) > 1 else text
