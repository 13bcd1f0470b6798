"""Passwords that commands are given, and where they go: to the environment, and nowhere else.

Imports no typer, as the commands that are processes of their own do not.
"""

import os
import sys
from dataclasses import replace
from getpass import getpass
from pathlib import Path

from headrace.cli.failures import UsageError
from headrace.client.connect import PASSWORD_VARIABLE, SYSTEM, Identity
from headrace.client.connect import read_password as read_password_file
from headrace.secret_references import is_reference

__all__ = ["complete_identity", "read_password_or_stdin"]

_STDIN = "-"


def complete_identity(given: Identity) -> Identity:
    """The same with whole paths; a password that is typed or read from the input goes to the environment."""
    files = ("tls_ca", "password_file", "client_certificate", "client_key")
    found = replace(given, **{name: _whole(getattr(given, name)) for name in files})
    if given.user and given.password_file == _STDIN:
        os.environ[PASSWORD_VARIABLE] = read_password_or_stdin(_STDIN)
        found = replace(found, password_file="")
    elif given.user and not given.password_file and PASSWORD_VARIABLE not in os.environ:
        if not sys.stdin.isatty():
            raise UsageError(
                f"--user {given.user} needs a password: set {PASSWORD_VARIABLE} or pass --password-file"
            )
        os.environ[PASSWORD_VARIABLE] = getpass(f"Password of {given.user}: ")
    found.client_properties()
    return found


def _whole(path: str) -> str:
    return path if path in ("", _STDIN, SYSTEM) or is_reference(path) else str(Path(path).absolute())


def read_password_or_stdin(path: str) -> str:
    """The first line of a file (`-`: of standard input); raises ConfigError."""
    if path != _STDIN:
        return read_password_file(path)
    password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise UsageError("standard input is empty; its first line must be the password")
    return password
