"""How much memory a run of compaction may take."""

from dataclasses import dataclass

__all__ = ["CompactionLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLimits:
    """`map_bytes` for the newest offsets of keys, 24 bytes each and a third more; `read_bytes` read ahead.

    Besides these a run holds a few megabytes, or a few times the largest batch
    uncompressed if that is more.
    """

    map_bytes: int = 32 * 1024 * 1024
    read_bytes: int = 1024 * 1024
