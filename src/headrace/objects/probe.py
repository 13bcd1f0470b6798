"""Whether two processes see the same objects: one leaves a probe, and the other reads and answers it."""

import secrets
from collections.abc import Sequence

from headrace.errors import ConfigError, HeadraceError
from headrace.objects.objects import Objects

__all__ = ["check_probe", "leave_probe", "remove_probe"]

_FOLDER = "probes"


def leave_probe(objects: Objects) -> str:
    """Puts a probe, reads it back and lists it; its token. Raises ConfigError if one of that fails."""
    token = secrets.token_hex(8)
    name = f"{_FOLDER}/{token}"
    try:
        objects.put(name, [token.encode()])
        if objects.get(name) != token.encode() or name not in objects.names(_FOLDER):
            raise ConfigError(f"{objects.url} does not show what was just written there")
    except HeadraceError as error:
        raise ConfigError(
            f"the application's state cannot be kept at {objects.url}: {error}; see that the bucket exists "
            "and that this machine may read, write, list and delete in that folder"
        ) from error
    return token


def check_probe(objects: Objects, token: str) -> str:
    """What is wrong with these objects, seen from here; nothing if the probe was found and answered."""
    try:
        if objects.get(f"{_FOLDER}/{token}") != token.encode():
            return f"does not see the driver's objects at {objects.url}: see that both use the same endpoint"
        objects.put(f"{_FOLDER}/{token}.{secrets.token_hex(8)}", [b"answered"])
    except HeadraceError as error:
        return f"cannot use {objects.url}: {error}"
    return ""


def remove_probe(objects: Objects, token: str) -> int:
    """Removes the probe and its answers; how many answers there were."""
    found: Sequence[str] = [each for each in objects.names(_FOLDER) if each.startswith(f"{_FOLDER}/{token}")]
    objects.remove(found)
    return sum("." in each for each in found)
