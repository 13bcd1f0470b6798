"""Secrets by reference: an application declares where a secret is, never the secret itself.

A reference is `env:NAME`, an environment variable of the process that uses it, or
`file:PATH`, the contents of a file. References may be stored, logged and shown.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from headrace.errors import ConfigError

__all__ = ["is_reference", "resolve"]

_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:.+")


def is_reference(text: str) -> bool:
    """Whether this says where a secret is."""
    return _REFERENCE.fullmatch(text) is not None


def resolve(text: str, what: str, environment: Mapping[str, str] | None = None) -> str:
    """What a reference points to, or the text itself if it is not one.

    Raises ConfigError, which names `what` and the reference, if there is nothing there.
    """
    if not is_reference(text):
        return text
    kind, _, place = text.partition(":")
    if kind == "env":
        found = (os.environ if environment is None else environment).get(place, "")
        missing = f"the environment variable {place} is not set"
    else:
        found, missing = _file(place), f"the file {place} is missing, empty or may not be read"
    if not found.strip():
        raise ConfigError(f"{what} is {text}, but {missing}; set it where the application is started")
    return found.strip()


def _file(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError):
        return ""
