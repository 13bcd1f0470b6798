"""Where the keys of an application's subjects are, and its master key.

`HEADRACE_KEYS` names the key file; without it, it is `personal/keys.db` in the application's data
folder. `HEADRACE_MASTER_KEY` says where the master key is (`env:NAME` or `file:PATH`); without it, it is
`personal/master.key` in that folder, made when it is first needed.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.errors import ConfigError
from headrace.personal.cipher import KEY_BYTES
from headrace.personal.keys import KeyStore
from headrace.secret_references import is_reference, resolve

__all__ = ["KeyPlace", "key_place", "open_keys"]

KEYS: Final = "HEADRACE_KEYS"
MASTER_KEY: Final = "HEADRACE_MASTER_KEY"


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """A key file, and where its master key is."""

    path: Path
    master: str

    def environment(self) -> dict[str, str]:
        """By which another process finds the same keys."""
        return {KEYS: str(self.path), MASTER_KEY: self.master}


def key_place(data: Path, environment: Mapping[str, str] | None = None) -> KeyPlace:
    """Where the keys of an application with this data folder are, as the environment says."""
    given = os.environ if environment is None else environment
    path = Path(given.get(KEYS) or data / "personal" / "keys.db").absolute()
    return KeyPlace(path, given.get(MASTER_KEY) or f"file:{path.parent / 'master.key'}")


def open_keys(place: KeyPlace) -> KeyStore:
    """Opens the keys; makes the file, and a master key where none was named, the first time."""
    if not is_reference(place.master):
        raise ConfigError(
            f"{MASTER_KEY} must say where the master key is: env:NAME or file:PATH; the key itself does not "
            "belong there"
        )
    own = place.path.parent / "master.key"
    if place.master == f"file:{own}" and not own.exists() and not place.path.exists():
        _make_master(own)
    return KeyStore(place.path, _decoded(resolve(place.master, MASTER_KEY), place.master))


def _make_master(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(base64.b64encode(os.urandom(KEY_BYTES)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(part, path)  # the second process uses the key of the first
    except FileExistsError:
        pass
    finally:
        part.unlink()


def _decoded(text: str, reference: str) -> bytes:
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if len(found) != KEY_BYTES:
        raise ConfigError(
            f"the master key at {reference} is not {KEY_BYTES} bytes in base64; make one with "
            "`openssl rand -base64 32`"
        )
    return found
