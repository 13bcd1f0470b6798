"""Tokens and their roles, in a file that holds their hashes only.

A token is 256 bits of randomness, so a plain SHA-256 of it gives nothing away and is
compared in no time. The file is read again when it changes: a removed token is refused
within a second, without a restart.
"""

import hashlib
import json
import os
import re
import secrets
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.clock import Clock, SystemClock
from headrace.console.security import NOBODY, Principal, Role
from headrace.errors import ConfigError, RequestError

__all__ = ["StoredToken", "UsersFile", "add_token", "read_users", "remove_token"]

FORMAT = 1
_PREFIX = "hr_"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,62}", re.ASCII)
_LOOK_AGAIN_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """One token as the file has it: whose, what they may do, and its hash."""

    name: str
    role: str
    sha256: str
    created_at: str


def read_users(path: Path) -> tuple[StoredToken, ...]:
    """The credentials of a file; none if it is missing. Raises ConfigError if it is no such file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']}")
        found = tuple(StoredToken(**each) for each in data["tokens"])
        for each in found:
            Role[each.role.upper()]
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} is not a token file ({type(error).__name__}: {error}); "
            "create one with `headrace console token add`"
        ) from None
    return found


def add_token(path: Path, name: str, role: str) -> str:
    """Makes a token for a new name and returns it; it cannot be read back later."""
    if not _NAME.fullmatch(name):
        raise RequestError(f"{name!r} is not a valid name: use letters, digits, '.', '_', '@' and '-'")
    known = read_users(path)
    if any(each.name == name for each in known):
        raise RequestError(f"{name!r} already has a token; remove it first, or choose another name")
    token = _PREFIX + secrets.token_urlsafe(32)
    made = StoredToken(
        name=name, role=role, sha256=_hashed(token), created_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    )
    _write(path, [*known, made])
    return token


def remove_token(path: Path, name: str) -> None:
    """Forgets a name's token; raises RequestError if there is none."""
    known = read_users(path)
    kept = [each for each in known if each.name != name]
    if len(kept) == len(known):
        names = ", ".join(each.name for each in known) or "none"
        raise RequestError(f"there is no token for {name!r} in {path}; the users are: {names}")
    _write(path, kept)


class UsersFile:
    """The principals of a file, as it is now or was a second ago. Any thread."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._principals = _principals(read_users(path))
        self._stamp = _stamp(path)
        self._looked_ms = self._clock.monotonic_ms()

    def principal(self, token: str, *, by_token: bool) -> Principal:
        """Whose token this is; NOBODY if it is nobody's."""
        self._look_again()
        found = self._principals.get(_hashed(token))
        return NOBODY if found is None else Principal(found.name, found.role, by_token)

    def _look_again(self) -> None:
        now = self._clock.monotonic_ms()
        if now - self._looked_ms < _LOOK_AGAIN_MS:
            return
        with self._lock:
            self._looked_ms = now
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                self._principals, self._stamp = _principals(read_users(self._path)), stamp


def _principals(credentials: Iterable[StoredToken]) -> dict[str, Principal]:
    return {each.sha256: Principal(each.name, Role[each.role.upper()]) for each in credentials}


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _write(path: Path, credentials: list[StoredToken]) -> None:
    """Replaces the file in one step; only its owner may read it."""
    data: dict[str, Any] = {"format": FORMAT, "tokens": [asdict(each) for each in credentials]}
    beside = path.with_name(f".{path.name}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
