"""Who a command is towards the broker, and how its connections are encrypted.

Options that every command with --bootstrap has, added to the tree in one place.
A password comes from the environment, a file or the terminal, never from the
command line, which every user of the machine can read.
"""

import os
import sys
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from getpass import getpass
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.failures import UsageFaultError

__all__ = ["MECHANISMS", "add_identity_options", "client_properties", "read_password"]

PASSWORD_VARIABLE = "HEADRACE_PASSWORD"  # noqa: S105 - the name of one
SYSTEM = "system"
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What was given of it."""

    user: str | None = None
    password_file: str | None = None
    sasl_mechanism: str | None = None
    tls_ca: str | None = None
    password: str | None = field(default=None, repr=False)


_given: ContextVar[Identity] = ContextVar("identity", default=Identity())  # noqa: B039 - frozen


def _remember(parameter: typer.CallbackParam, value: str | None) -> str | None:
    if parameter.name in Identity.__slots__:
        _given.set(replace(_given.get(), **{parameter.name: value}))
    return value


def _option(name: str, metavar: str, text: str) -> Any:
    flag, variable = "--" + name.replace("_", "-"), f"HEADRACE_{name.upper()}"
    return typer.Option(flag, metavar=metavar, help=text, envvar=variable, callback=_remember)


_carrier = typer.Typer()


@_carrier.command()
def _identity(
    user: Annotated[str | None, _option("user", "NAME", "User to log in as.")] = None,
    password_file: Annotated[
        str | None,
        _option(
            "password_file", "FILE", f"File that holds the user's password; else {PASSWORD_VARIABLE} counts."
        ),
    ] = None,
    sasl_mechanism: Annotated[
        str | None,
        _option(
            "sasl_mechanism", "NAME", f"How to log in: {', '.join(MECHANISMS)}. Default: {MECHANISMS[0]}."
        ),
    ] = None,
    tls_ca: Annotated[
        str | None,
        _option(
            "tls_ca",
            "FILE",
            f"Certificates to trust the broker by; turns TLS on. `{SYSTEM}`: this machine's.",
        ),
    ] = None,
) -> None:
    """Never run: it only carries the options that others are given."""
    del user, password_file, sasl_mechanism, tls_ca


def add_identity_options(command: Any) -> None:
    """Gives the options to every command below `command` that speaks to a broker."""
    carrier: Any = typer.main.get_command(_carrier)
    options = [each for each in carrier.params if each.name in Identity.__slots__]
    for option in options:
        option.expose_value = False
    _extend(command, options)


def _extend(command: Any, options: list[Any]) -> None:
    for child in getattr(command, "commands", {}).values():
        _extend(child, options)
    if any(parameter.name == "bootstrap" for parameter in command.params):
        command.params.extend(options)


def client_properties() -> dict[str, Any]:
    """The client library's properties for what was given; raises UsageFaultError."""
    identity = _given.get()
    properties: dict[str, Any] = {}
    if identity.tls_ca is not None and identity.tls_ca != SYSTEM:
        if not Path(identity.tls_ca).is_file():
            raise UsageFaultError(f"--tls-ca {identity.tls_ca}: there is no such file; give one in PEM")
        properties["ssl.ca.location"] = identity.tls_ca
    if identity.user is not None:
        mechanism = (identity.sasl_mechanism or MECHANISMS[0]).upper()
        if mechanism not in MECHANISMS:
            raise UsageFaultError(f"--sasl-mechanism {mechanism}: use one of {', '.join(MECHANISMS)}")
        properties["sasl.mechanism"] = mechanism
        properties["sasl.username"] = identity.user
        properties["sasl.password"] = _password(identity)
    return {**properties, **_protocol(identity)}


def _protocol(identity: Identity) -> dict[str, str]:
    encrypted = identity.tls_ca is not None
    if identity.user is not None:
        return {"security.protocol": "SASL_SSL" if encrypted else "SASL_PLAINTEXT"}
    return {"security.protocol": "SSL"} if encrypted else {}


def _password(identity: Identity) -> str:
    if identity.password is not None:
        return identity.password
    if identity.password_file is not None:
        found = read_password(identity.password_file)
    elif PASSWORD_VARIABLE in os.environ:
        found = os.environ[PASSWORD_VARIABLE]
    elif sys.stdin.isatty():
        found = getpass(f"Password of {identity.user}: ")
    else:
        raise UsageFaultError(
            f"--user {identity.user} needs a password: set {PASSWORD_VARIABLE} or give --password-file"
        )
    _given.set(replace(identity, password=found))  # asked for once
    return found


def read_password(path: str) -> str:
    """The first line of a file (`-`: of standard input); raises UsageFaultError."""
    try:
        text = sys.stdin.readline() if path == "-" else Path(path).read_text().partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise UsageFaultError(f"the password file {path} cannot be read: {reason}") from None
    password = text.rstrip("\r\n")
    if not password:
        raise UsageFaultError(f"the password file {path} is empty; its first line is the password")
    return password
