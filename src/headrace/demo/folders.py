"""Where a demonstration keeps its things."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import ConfigError

__all__ = ["demo_folder"]

_MARK = "demo.json"


@contextlib.contextmanager
def demo_folder(data: Path | None) -> Iterator[Path]:
    """The folder `data`, which must be empty or of an earlier demonstration, or one that goes in the end.

    Raises ConfigError if somebody else's things are in it.
    """
    if data is None:
        with _temporary() as folder:
            yield folder
        return
    data.mkdir(parents=True, exist_ok=True)
    if any(data.iterdir()) and not (data / _MARK).exists():
        raise ConfigError(
            f"{data} is not empty, and not of an earlier demonstration; name another folder, or none to "
            "use a temporary one"
        )
    (data / _MARK).write_text(json.dumps({"application": "shop"}))
    yield data


@contextlib.contextmanager
def _temporary() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
