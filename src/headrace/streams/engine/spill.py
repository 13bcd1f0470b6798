"""Large blobs between the processes of one machine, as files; Spark carries their names.

What Spark carries goes through its Java several times: out of one Python process, through
a shuffle, into the next, and at last to the driver. A spill file is written once and read once,
and Spark sees a message of kind SPILLED: the kind that it is of, and the name of its file.

A file is named at random and whole when its name is told, so that attempts of a task do not
meet. The files of a batch are there until it is done, however often a task of it is tried;
then all are removed. None is synced: a batch that a crash interrupts is computed again.
"""

import contextlib
import secrets
import shutil
from pathlib import Path

from headrace.crash_points import reached
from headrace.errors import DiskError
from headrace.streams.engine.messages import BlobKind, decode_json, encode_json

__all__ = ["SpillFiles"]


class SpillFiles:
    """Those of one query, in a folder that all its processes see: blobs of at least `min_bytes`.

    Without a folder every blob is carried.
    """

    def __init__(self, folder: Path | None = None, *, min_bytes: int = 0) -> None:
        self._folder = folder
        self._min_bytes = min_bytes

    def sent(self, kind: BlobKind, blob: bytes) -> tuple[BlobKind, bytes]:
        """The message that is carried for this one: itself if it is small."""
        if self._folder is None or len(blob) < self._min_bytes:
            return kind, blob
        path = self._folder / secrets.token_hex(8)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(blob)
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)  # a half would keep a full disk full
            raise DiskError.at(path, error) from error
        reached("spill file written")
        return BlobKind.SPILLED, encode_json({"kind": int(kind), "name": path.name})

    def received(self, kind: BlobKind, blob: bytes) -> tuple[BlobKind, bytes]:
        """The message that was sent as this one."""
        if kind is not BlobKind.SPILLED:
            return kind, blob
        assert self._folder is not None
        spilled = decode_json(blob)
        return BlobKind(spilled["kind"]), (self._folder / spilled["name"]).read_bytes()

    def remove_all(self) -> None:
        """For when a batch is done, and for what an earlier run left behind."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
