"""What a log is asked before anything is read from it: where a stream starts, how large its records are."""

from collections.abc import Mapping

from headrace.client import EARLIEST, RawFetcher
from headrace.errors import RequestError
from headrace.streams.feed.batch_sizes import Sizes, within
from headrace.streams.offsets import TopicPosition, admit
from headrace.streams.spec import StreamSpec
from headrace.streams.start import Start, parse_start

__all__ = ["LOOKED_BYTES", "admitted", "first_position", "measured", "start_position"]

LOOKED_BYTES = 16 << 20  # some 20 ms
_LEAST_ASKED_BYTES, _MOST_ASKED_BYTES = 64 << 10, 8 << 20


def start_position(fetcher: RawFetcher, topic: str, start: Start) -> TopicPosition:
    """The offsets a Start stands for now; raises RequestError if it names a partition that is not there."""
    layout = fetcher.layout(topic)
    unknown = sorted(start.offsets.keys() - layout.leaders.keys())
    if unknown:
        raise RequestError(
            f"start names partition {unknown[0]} of {topic}, which has {len(layout.leaders)}; correct start"
        )
    following = fetcher.offsets(topic, start.when) | dict(start.offsets)
    return TopicPosition(topic=topic, topic_id=layout.id, next=following)


def first_position(fetcher: RawFetcher, spec: StreamSpec) -> TopicPosition:
    """Where a stream's query begins: as was found before, or else what its start stands for now."""
    if not spec.begins:
        return start_position(fetcher, spec.topic, parse_start(spec.start))
    return TopicPosition(topic=spec.topic, topic_id=fetcher.layout(spec.topic).id, next=dict(spec.begins))


def admitted(
    fetcher: RawFetcher,
    start: TopicPosition,
    latest: TopicPosition,
    max_records: int | None,
    max_bytes: int | None,
) -> TopicPosition:
    """How far a micro-batch from `start` may go towards `latest` within both limits; None means none."""
    end = admit(start, latest, max_records)
    if max_bytes is None:
        return end
    return within(start, end, measured(fetcher, start, end, max_bytes), max_bytes)


def measured(
    fetcher: RawFetcher, start: TopicPosition, end: TopicPosition, max_bytes: int
) -> dict[int, Sizes]:
    """The sizes of what waits between two positions, from the log itself.

    Bytes of log are known only to who reads them: so the batches that wait are fetched,
    and their headers looked at, until the limit is reached, but for at most `LOOKED_BYTES`.
    Of a stream that keeps up that is everything, and little; one that has gigabytes to
    catch up with must not read them all twice. Partitions go forward in step, by the
    share of what waits in each, since that is how a micro-batch is cut.
    """
    enough = min(max_bytes, LOOKED_BYTES)
    found = {
        each: Sizes(start.next.get(each, 0), last)
        for each, last in end.next.items()
        if last > start.next.get(each, 0)
    }
    while behind := _behind(found):
        missing = enough - sum(sizes.bytes for sizes in found.values())
        # A broker need not answer for all at once: those of which nothing is known are asked again.
        if missing <= 0 and all(sizes.reached > sizes.start for sizes in found.values()):
            break
        asked_bytes = min(_MOST_ASKED_BYTES, max(_LEAST_ASKED_BYTES, int(missing) // len(behind)))
        if not _look(fetcher, start.topic, behind, asked_bytes):
            break
    return found


def _behind(found: Mapping[int, Sizes]) -> dict[int, Sizes]:
    """The partitions to look at next, the last first; who is further than the middle waits for the others."""
    shares = {
        each: (sizes.reached - sizes.start) / (sizes.end - sizes.start)
        for each, sizes in found.items()
        if sizes.reached < sizes.end
    }
    middle = (min(shares.values()) + max(shares.values())) / 2 if shares else 0.0
    return {each: found[each] for each in sorted(shares, key=shares.__getitem__) if shares[each] <= middle}


def _look(fetcher: RawFetcher, topic: str, found: Mapping[int, Sizes], asked_bytes: int) -> bool:
    """Looks at the next batches of these partitions; False if there was nothing to see."""
    before = {each: sizes.reached for each, sizes in found.items()}
    answered = fetcher.batch_sizes(topic, before, asked_bytes)
    for each, batches in answered.items():
        for batch in batches:
            found[each].add(*batch)
    gone = before.keys() - answered.keys()
    if gone:  # who reads there says what is gone, or skips it
        firsts = fetcher.offsets(topic, EARLIEST)
        for each in gone:
            found[each].skip_to(firsts.get(each, 0))
    return any(sizes.reached > before[each] for each, sizes in found.items())
