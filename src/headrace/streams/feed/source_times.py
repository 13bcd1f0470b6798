"""What a record of a derived topic tells of the row it was made from; no Spark, no I/O.

Beside `headrace.source`, the place of the source's record, it has the header
`headrace.source.time`: the row's event time and, behind a colon, its watermark, as the query
that made it had them, in microseconds since the epoch. Where a row had no watermark yet,
nothing stands behind the colon.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.records import SOURCE_HEADER, TIME_HEADER
from headrace.streams.event_time import NO_WATERMARK

__all__ = ["SourceTimes", "time_header"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_TIMES = r"^(?P<event_time>-?[0-9]{1,18}):(?P<watermark>-?[0-9]{1,18}|)$"
_SOURCE = r"^(?P<source>[A-Za-z0-9._-]{1,249}:[0-9]{1,9}):"


def time_header(event_time_us: int, watermark_us: int) -> tuple[str, bytes]:
    """What a derived record says of its row's time."""
    watermark = "" if watermark_us == NO_WATERMARK else str(watermark_us)
    return TIME_HEADER, f"{event_time_us}:{watermark}".encode()


@dataclass(frozen=True, slots=True)
class SourceTimes:
    """Of each of some records: whether a query made it, and then its row's times and its source.

    A source is named by topic and partition. Where no query made a record the rest means nothing.
    """

    is_derived: Bools
    event_times: Ints
    watermarks: Ints
    sources: npt.NDArray[Any]

    @classmethod
    def of(cls, headers: pa.Array) -> Self | None:
        """From the headers of records; None if no query made any of them."""
        rows, times = _texts(headers, TIME_HEADER, _TIMES)
        if not len(rows):
            return None
        count = len(headers)
        named, sources = _texts(headers, SOURCE_HEADER, _SOURCE)
        found = cls(
            np.zeros(count, np.bool_),
            np.zeros(count, np.int64),
            np.full(count, NO_WATERMARK, np.int64),
            np.full(count, "", object),
        )
        found.sources[named] = sources.field("source").to_numpy(zero_copy_only=False)
        found.event_times[rows] = times.field("event_time").cast(pa.int64()).to_numpy()
        watermarks = times.field("watermark")
        blank = pc.equal(watermarks, "")
        given = pc.if_else(blank, str(NO_WATERMARK), watermarks)
        found.watermarks[rows] = given.cast(pa.int64()).to_numpy()
        found.is_derived[rows] = True
        found.is_derived[found.sources == ""] = False
        return found

    def watermarks_less(self, longer_us: int) -> Ints:
        """The watermarks with a lateness that is longer by this much."""
        return np.where(self.watermarks == NO_WATERMARK, NO_WATERMARK, self.watermarks - longer_us)

    def at(self, rows: Ints | None) -> "SourceTimes":
        """Those of some of the records; None stands for all."""
        if rows is None:
            return self
        return SourceTimes(
            self.is_derived[rows], self.event_times[rows], self.watermarks[rows], self.sources[rows]
        )


def _texts(headers: pa.Array, name: str, pattern: str) -> tuple[Ints, pa.StructArray]:
    """The records whose header of this name fits the pattern, and what it captures of each."""
    items = headers.flatten()
    at = pc.indices_nonzero(pc.equal(items.field("key"), name))
    rows = pc.list_parent_indices(headers).take(at)
    captured = pc.extract_regex(items.field("value").take(at), pattern)
    fitting = pc.is_valid(captured)
    found = captured.filter(fitting)
    texts = [pc.cast(found.field(each.name), pa.string()) for each in found.type]
    structs = pa.StructArray.from_arrays(texts, names=[each.name for each in found.type])
    return rows.filter(fitting).to_numpy(zero_copy_only=False).astype(np.int64), structs
