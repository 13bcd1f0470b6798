"""One file of batches, and how its name tells what it holds.

`<base offset>.log` is written by appends: offsets without gaps. Compaction
writes `<base offset>-<next offset>-<run>.clog`: gaps allowed, and it stands for
every other file whose base offset lies in its range, should a crash have left
them behind.
"""

import re
from pathlib import Path

from headrace.storage.segments.index import SparseIndex
from headrace.storage.segments.open_files import DataFile

__all__ = ["Segment", "plain_name", "segments_in"]

_PLAIN = re.compile(r"(\d{20})\.log")
_COMPACTED = re.compile(r"(\d{20})-(\d{20})-(\d+)\.clog")


class Segment:
    """A segment as readers see it.

    `size_bytes` covers synced bytes only; for the active segment it grows with
    each commit, one assignment at a time. `index` is always there for the active
    segment, and comes and goes with the index cache for sealed ones.
    """

    __slots__ = (
        "base_offset",
        "compacted",
        "created_ms",
        "file",
        "horizon_ms",
        "index",
        "largest_timestamp",
        "next_offset",
        "run",
        "size_bytes",
    )

    def __init__(
        self,
        path: Path,
        base_offset: int,
        *,
        size_bytes: int = 0,
        next_offset: int | None = None,
        run: int = 0,
    ) -> None:
        self.file = DataFile(path)
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.next_offset = next_offset  # known from the name of a compacted segment, else None
        self.compacted = next_offset is not None
        self.run = run  # of compaction: the higher, the newer
        self.horizon_ms = 1 if self.compacted else 0  # when its first tombstones may go; 1: not known
        self.largest_timestamp: int | None = None  # of a sealed segment, once known
        self.index: SparseIndex | None = None
        self.created_ms = 0  # when the first batch was appended; 0: none yet, or not known

    def note_horizon(self, horizon_ms: int | None) -> None:
        """Takes note of a batch's delete horizon; the earliest counts."""
        if horizon_ms is not None:
            self.horizon_ms = horizon_ms if self.horizon_ms <= 1 else min(self.horizon_ms, horizon_ms)

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def index_path(self) -> Path:
        return self.file.path.with_suffix(".index")

    @property
    def offsets_path(self) -> Path:
        """Of a compacted segment: the checksum of all its base offsets, for when the index is lost."""
        return self.file.path.with_suffix(".offsets")

    @property
    def paths(self) -> tuple[Path, ...]:
        """Its files, but those that are there for all segments."""
        return (self.path, self.index_path, *((self.offsets_path,) if self.compacted else ()))


def plain_name(base_offset: int) -> str:
    return f"{base_offset:020}.log"


def compacted_name(base_offset: int, next_offset: int, run: int) -> str:
    return f"{base_offset:020}-{next_offset:020}-{run}.clog"


def segments_in(directory: Path, sizes: dict[str, int]) -> tuple[list[Segment], list[str]]:
    """The segments that make up the log, in order, and the files they replaced."""
    plain: list[Segment] = []
    compacted: list[Segment] = []
    for name, size in sizes.items():
        if match := _PLAIN.fullmatch(name):
            plain.append(Segment(directory / name, int(match[1]), size_bytes=size))
        elif match := _COMPACTED.fullmatch(name):
            base, end, run = map(int, match.groups())
            compacted.append(Segment(directory / name, base, size_bytes=size, next_offset=end, run=run))
    return _without_replaced(plain, compacted)


def _without_replaced(plain: list[Segment], compacted: list[Segment]) -> tuple[list[Segment], list[str]]:
    """A run of compaction covers older files whole, so of two files over an offset the newer run wins."""
    kept: list[Segment] = []
    replaced: list[str] = []
    # The widest first: what covers a file always comes before it.
    for segment in sorted(plain + compacted, key=lambda s: (s.base_offset, -_end(s), -s.run)):
        if kept and segment.base_offset < _end(kept[-1]):
            replaced.append(segment.path.name)
        else:
            kept.append(segment)
    return kept, replaced


def _end(segment: Segment) -> int:
    return segment.base_offset if segment.next_offset is None else segment.next_offset
