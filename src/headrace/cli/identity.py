"""Who a command is towards the broker, and how its connections are encrypted.

Options that every command with --bootstrap has, added to the tree in one place.
A password comes from the environment, a file or the terminal, never from the
command line, which every user of the machine can read.
"""

from contextvars import ContextVar
from dataclasses import replace
from typing import Annotated, Any

import typer

from headrace.cli.passwords import complete_identity
from headrace.client.connect import MECHANISMS, PASSWORD_VARIABLE, SYSTEM, Connection, Identity

__all__ = ["add_identity_options", "connection_to", "identity"]

_DEFAULTS = Identity()
_FIELDS = tuple(_DEFAULTS.identity_fields())
_given: ContextVar[Identity] = ContextVar("identity", default=_DEFAULTS)


def _remember(parameter: typer.CallbackParam, value: str | None) -> str | None:
    if parameter.name in _FIELDS:
        given = value or getattr(_DEFAULTS, parameter.name)
        _given.set(replace(_given.get(), **{parameter.name: given}))
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
            "password_file", "FILE", f"File with the user's password. Default: {PASSWORD_VARIABLE}, or ask."
        ),
    ] = None,
    sasl_mechanism: Annotated[
        str | None,
        _option(
            "sasl_mechanism", "NAME", f"SASL mechanism: {', '.join(MECHANISMS)}. Default: {MECHANISMS[0]}."
        ),
    ] = None,
    tls_ca: Annotated[
        str | None,
        _option(
            "tls_ca",
            "FILE",
            f"CA certificates to trust; enables TLS. `{SYSTEM}` for this machine's.",
        ),
    ] = None,
    client_certificate: Annotated[
        str | None,
        _option("client_certificate", "FILE", "Client certificate with its chain, as PEM."),
    ] = None,
    client_key: Annotated[
        str | None, _option("client_key", "FILE", "Private key of the client certificate, unencrypted PEM.")
    ] = None,
) -> None:
    """Never run: it only carries the options that others are given."""
    del user, password_file, sasl_mechanism, tls_ca, client_certificate, client_key


def add_identity_options(command: Any) -> None:
    """Gives the options to every command below `command` that speaks to a broker."""
    carrier: Any = typer.main.get_command(_carrier)
    options = [each for each in carrier.params if each.name in _FIELDS]
    for option in options:
        option.expose_value = False
    _extend(command, options)


def _extend(command: Any, options: list[Any]) -> None:
    for child in getattr(command, "commands", {}).values():
        _extend(child, options)
    if any(parameter.name == "bootstrap" for parameter in command.params):
        command.params.extend(options)


def identity() -> Identity:
    """Who the command was told to be, complete: the password is where other processes find it as well.

    A password is asked for, or read from the input, once. Raises ConfigError if it cannot be
    had, or a file is missing.
    """
    found = complete_identity(_given.get())
    _given.set(found)
    return found


def connection_to(bootstrap: str, **settings: Any) -> Connection:
    """How the command reaches a log; raises ConfigError as `identity` does."""
    return Connection(bootstrap_servers=bootstrap, **settings, **identity().identity_fields())
