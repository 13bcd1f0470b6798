"""What a log is asked before anything is read from it: where a stream starts, how large its records are."""

from collections.abc import Mapping

from headrace.client import OffsetsGone, RawFetcher
from headrace.errors import RequestError
from headrace.streams.positions import Position
from headrace.streams.spec import StreamSpec
from headrace.streams.starts import Start, parse_start

__all__ = ["RecordSizes", "first_position", "start_position"]


def start_position(fetcher: RawFetcher, topic: str, start: Start) -> Position:
    """The offsets a Start stands for now; raises RequestError if it names a partition that is not there."""
    layout = fetcher.layout(topic)
    unknown = sorted(start.offsets.keys() - layout.leaders.keys())
    if unknown:
        raise RequestError(
            f"start names partition {unknown[0]} of {topic}, which has {len(layout.leaders)}; correct start"
        )
    following = fetcher.offsets(topic, start.when) | dict(start.offsets)
    return Position(topic=topic, topic_id=layout.id, next=following)


def first_position(fetcher: RawFetcher, spec: StreamSpec) -> Position:
    """Where a stream's query begins: as was found before, or else what its start stands for now."""
    if not spec.begins:
        return start_position(fetcher, spec.topic, parse_start(spec.start))
    return Position(topic=spec.topic, topic_id=fetcher.layout(spec.topic).id, next=dict(spec.begins))


class RecordSizes:
    """The average bytes of log that an offset takes in each partition, for limits in bytes.

    A look at the first batches that wait. It is repeated only where the limit may
    matter, so that a stream that keeps up is not asked for it at every batch.
    """

    def __init__(self) -> None:
        self._known: dict[int, float] = {}

    def of(
        self, fetcher: RawFetcher, start: Position, latest: Position, max_bytes: int | None
    ) -> Mapping[int, float]:
        """The sizes of what waits between two positions, as far as a limit needs them."""
        if max_bytes is None:
            return {}
        near = max_bytes / 4 / max(1, len(latest.next))
        for partition, end in latest.next.items():
            first, size = start.next.get(partition, 0), self._known.get(partition)
            if end > first and (size is None or size * (end - first) > near):
                self._known[partition] = _sample(fetcher, start.topic, partition, first, end)
        return self._known


def _sample(fetcher: RawFetcher, topic: str, partition: int, first: int, end: int) -> float:
    try:
        return fetcher.record_bytes(topic, partition, first, end)
    except OffsetsGone:
        return 0.0  # whoever reads there says what is gone
