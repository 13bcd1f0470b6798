"""One file of batches, and how its name tells what it holds.

`<base offset>.log` is written by appends: offsets without gaps. Compaction
writes `<base offset>-<next offset>-<run>.clog`: gaps allowed, and it stands for
every other file whose base offset lies in its range, should a crash have left
them behind.
"""

import re
from pathlib import Path

from headrace.storage.files import DataFile
from headrace.storage.index import SparseIndex

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
        "index",
        "largest_timestamp",
        "next_offset",
        "size_bytes",
    )

    def __init__(
        self, path: Path, base_offset: int, *, size_bytes: int = 0, next_offset: int | None = None
    ) -> None:
        self.file = DataFile(path)
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.next_offset = next_offset  # known from the name of a compacted segment, else None
        self.compacted = next_offset is not None
        self.largest_timestamp: int | None = None  # of a sealed segment, once known
        self.index: SparseIndex | None = None
        self.created_ms = 0  # when the first batch was appended; 0: none yet, or not known

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def index_path(self) -> Path:
        return self.file.path.with_suffix(".index")


def plain_name(base_offset: int) -> str:
    return f"{base_offset:020}.log"


def compacted_name(base_offset: int, next_offset: int, run: int) -> str:
    return f"{base_offset:020}-{next_offset:020}-{run}.clog"


def segments_in(directory: Path, sizes: dict[str, int]) -> tuple[list[Segment], list[str]]:
    """The segments that make up the log, in order, and the files they replaced."""
    plain, compacted = [], []
    for name, size in sizes.items():
        if match := _PLAIN.fullmatch(name):
            plain.append(Segment(directory / name, int(match[1]), size_bytes=size))
        elif match := _COMPACTED.fullmatch(name):
            base, end, run = map(int, match.groups())
            compacted.append((run, Segment(directory / name, base, size_bytes=size, next_offset=end)))
    return _without_replaced(plain, compacted)


def _without_replaced(
    plain: list[Segment], compacted: list[tuple[int, Segment]]
) -> tuple[list[Segment], list[str]]:
    """A newer run of compaction covers whole older files, so the newest file over an offset wins."""
    ranked = compacted + [(-1, segment) for segment in plain]
    kept: list[Segment] = []
    replaced: list[str] = []
    covered_to, covering_run = -1, -1
    # In order of base offset, the widest first: a covering file always comes before what it covers.
    for run, segment in sorted(ranked, key=lambda r: (r[1].base_offset, -_end(r[1]), -r[0])):
        if segment.base_offset < covered_to and run <= covering_run:
            replaced.append(segment.path.name)
            continue
        kept.append(segment)
        covered_to, covering_run = _end(segment), run
    return kept, replaced


def _end(segment: Segment) -> int:
    return segment.base_offset if segment.next_offset is None else segment.next_offset
