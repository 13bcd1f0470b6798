"""The application of a console: its description, and the stores of its views, from its data folder."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.app.status import AppDescription, ViewDescription, read_description
from headrace.client import Connection
from headrace.console.problems import ProblemError
from headrace.personal import KeyStore, key_place, open_keys
from headrace.views import ViewStore, open_store

__all__ = ["ApplicationFolder"]

_IDLE_STORES = 4
_DATABASES = ("sqlite:", "postgresql:", "postgres:")


class ApplicationFolder:
    """The data folder of `headrace run`; without a `path` there is no application. Any thread; blocks.

    A copy of it has no keys of personal data, unless the environment says where they are.
    """

    def __init__(self, path: Path | None, connection: Connection, *, is_copy: bool = False) -> None:
        self.path = path
        self._is_copy = is_copy
        self._connection = connection
        self._lock = threading.Lock()
        self._described: tuple[Any, AppDescription | None] = (None, None)
        self._idle: dict[str, list[ViewStore]] = {}
        self._keys: KeyStore | None = None

    def description(self) -> AppDescription | None:
        """The application that runs or ran last on the folder; read again when its file changes."""
        if self.path is None:
            return None
        stamp = _stamp(self.path / "app.json")
        with self._lock:
            if stamp is None or self._described[0] != stamp:
                self._described = (stamp, read_description(self.path))
            return self._described[1]

    def file(self) -> str:
        """The application's file, to ask its code; raises ProblemError with 409 if it is not here."""
        found = self.description()
        if found is None or found.file is None or self._is_copy or not Path(found.file).is_file():
            raise ProblemError(
                409,
                "this needs the application's code, and its file is not on this machine",
                "ask on the command line, where the file is",
                kind="no-code",
            )
        return found.file

    def check_is_original(self) -> None:
        """Raises ProblemError with 409 if this is a copy of the folder, where decisions have no effect."""
        if self._is_copy:
            raise ProblemError(
                409,
                "this console reads a copy of the application's data folder",
                "decide on the machine that runs the application, with `headrace views switch`",
                kind="copy",
            )

    def views(self) -> dict[str, ViewDescription]:
        """The views that are kept in a store, by name."""
        found = self.description()
        return {} if found is None else {each.name: each for each in found.views if each.store is not None}

    def view(self, name: str) -> ViewDescription:
        """A view by its name; raises ProblemError with 404."""
        known = self.views()
        if name not in known:
            if self.path is None:
                raise ProblemError(
                    404,
                    "this console has no application",
                    "start it with --data DIR, the data folder of `headrace run`",
                )
            names = ", ".join(sorted(known)) or "none"
            raise ProblemError(404, f"there is no view {name!r}; the views are: {names}")
        return known[name]

    @contextmanager
    def store_of(self, view: ViewDescription) -> Iterator[ViewStore]:
        """The store of a view for the length of the block.

        Databases are opened several times, for one at a time reads from each; the other
        stores once, since they hold what they read.
        """
        if view.store is None:
            raise ProblemError(404, f"{view.name!r} is a topic, and has no rows")
        url = view.store.openable(os.environ)
        alone = url.startswith(_DATABASES)
        with self._lock:
            idle = self._idle.setdefault(url, [])
            store = idle.pop() if idle and alone else idle[0] if idle else None
            if store is None:
                store = open_store(url, connection=self._connection)
                if not alone:
                    idle.append(store)
        try:
            yield store
        finally:
            if alone:
                self._give_back(idle, store)

    def _give_back(self, idle: list[ViewStore], store: ViewStore) -> None:
        with self._lock:
            kept = len(idle) < _IDLE_STORES
            if kept:
                idle.append(store)
        if not kept:
            store.close()

    def keys(self) -> KeyStore:
        """The keys of the application's subjects; raises ProblemError with 503 if it has none here."""
        with self._lock:
            if self._keys is None:
                if self.path is None or (self._is_copy and not os.environ.get("HEADRACE_KEYS")):
                    raise ProblemError(
                        503,
                        "personal fields need the application's keys, and this console has none",
                        "start it with --data DIR, the data folder of `headrace run`",
                    )
                self._keys = open_keys(key_place(self.path))
            return self._keys

    def close(self) -> None:
        if self._keys is not None:
            self._keys.close()
        for idle in self._idle.values():
            for store in idle:
                store.close()


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
