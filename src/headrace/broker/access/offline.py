"""Users of a data directory that no broker has open: how the first administrator comes to be."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.broker.access.scram import SALT_BYTES, Mechanism, credential_from_password
from headrace.broker.access.state import AccessState
from headrace.broker.access.store import AccessStore
from headrace.errors import ConfigError
from headrace.storage import Disk
from headrace.storage.directory import DirectoryLock, InUse
from headrace.storage.disk import make_directory

__all__ = ["add_user", "list_users", "remove_user"]


def add_user(data: Path, name: str, password: str) -> bool:
    """Gives a user a password for every mechanism, durably; whether the user is new."""
    return name not in _change(data, lambda state: _with_password(state, name, password)).users


def remove_user(data: Path, name: str) -> bool:
    """Whether there was such a user."""
    return name in _change(data, lambda state: _without(state, name)).users


def list_users(data: Path) -> dict[str, list[tuple[str, int]]]:
    """Users with their mechanisms and iterations. Also while a broker runs: the file is whole at any time."""
    users = AccessStore(data).load().users
    return {
        name: [(each.sasl_name, held[each].iterations) for each in sorted(held)]
        for name, held in sorted(users.items())
    }


def _with_password(state: AccessState, name: str, password: str) -> AccessState:
    for mechanism in Mechanism:
        salt = secrets.token_bytes(SALT_BYTES)
        state = state.with_credential(name, credential_from_password(mechanism, password, salt))
    return state


def _without(state: AccessState, name: str) -> AccessState:
    for mechanism in Mechanism:
        state = state.without_credential(name, mechanism)
    return state


def _change(data: Path, make: Callable[[AccessState], AccessState]) -> AccessState:
    """Saves what is made of the state; the state before."""
    with _locked(data):
        store = AccessStore(data)
        before = store.load()
        store.save(make(before))
        return before


@contextmanager
def _locked(data: Path) -> Iterator[None]:
    disk = Disk()
    try:
        make_directory(disk, data)
        lock = DirectoryLock(disk, data)
    except InUse:
        raise ConfigError(
            f"a broker has {data} open; ask it instead, with --bootstrap in place of --data"
        ) from None
    except OSError as error:
        raise ConfigError(f"{data} cannot be used ({error.strerror}); check --data") from error
    try:
        yield
    finally:
        lock.release()
