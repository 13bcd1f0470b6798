"""The first pass: the newest offset of each key in the dirty part of a log, as far as memory reaches."""

from collections.abc import Iterable
from itertools import islice

import numpy as np

from headrace.storage.compaction.keeping import WINDOW_BYTES, WINDOW_RECORDS, rows_of
from headrace.storage.compaction.markers import AbortedRanges
from headrace.storage.compaction.offset_map import OffsetMap
from headrace.storage.compaction.reading import Batch

__all__ = ["newest_offsets"]


def newest_offsets(
    batches: Iterable[Batch], aborted: AbortedRanges, *, max_bytes: int, expected: int, from_offset: int
) -> tuple[OffsetMap, int | None]:
    """The map, and the first offset that found no room in it; None if all did.

    Records below `from_offset` and those of aborted transactions replace nothing.
    """
    newest = OffsetMap(max_bytes, expected)
    keys: list[bytes] = []
    offsets: list[int] = []
    held_bytes = 0
    for header, batch in batches:
        if header.is_control or not header.record_count or aborted.covers(header):
            continue
        found = rows_of(header, batch)
        if found is None:
            continue
        source, plain_bytes = found
        held_bytes += plain_bytes
        while window := list(islice(source, WINDOW_RECORDS)):
            for offset, key, _ in window:
                if key is not None and offset >= from_offset:
                    keys.append(key)
                    offsets.append(offset)
            if len(keys) >= WINDOW_RECORDS or held_bytes >= WINDOW_BYTES:
                taken = newest.add(keys, np.array(offsets, np.int64))
                if taken < len(keys):
                    return newest, offsets[taken]
                keys, offsets, held_bytes = [], [], 0
    taken = newest.add(keys, np.array(offsets, np.int64))
    return newest, offsets[taken] if taken < len(keys) else None
