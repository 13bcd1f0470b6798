"""Reading ranges of a topic: raw batches in, stamped rows out; no Spark."""

from collections.abc import Iterator, Mapping

from headrace.client import LATEST, OffsetsGone, RawFetcher
from headrace.errors import ConfigError, RequestError
from headrace.records import lay_out
from headrace.streams.event_time import Mark, PartitionTime
from headrace.streams.feed.first_positions import first_position
from headrace.streams.feed.options import FeedOptions
from headrace.streams.feed.positions import FeedRange
from headrace.streams.feed.stamping import Stamped, Stamper
from headrace.streams.spec import PROCESSING_TIME, StreamSpec

__all__ = ["RangeReading", "read_stamped"]


class RangeReading:
    """One pass over one range: iterate it for the stamped rows, then ask for the mark.

    Records that retention took before they were read raise RequestError, or, with
    on_gap="skip", are counted, offset by offset.
    """

    def __init__(self, fetcher: RawFetcher, spec: StreamSpec, span: FeedRange) -> None:
        self._fetcher = fetcher
        self._spec = spec
        self._span = span
        self._stamper = Stamper(spec, span.partition, span.time, now_us=span.now_us)
        self._records = self._rows = self._dead = self._skipped = self._repeated = 0

    def __iter__(self) -> Iterator[Stamped]:
        for start, run in self._runs():
            records = lay_out(run, start_offset=start, end_offset=self._span.end)
            if len(records):
                stamped = self._stamper.stamp(records)
                self._records += stamped.records
                self._rows += stamped.rows.num_rows
                self._dead += stamped.dead_count
                self._repeated += stamped.repeated
                yield stamped

    def mark(self) -> Mark:
        """What operators are told of this range, once it was read to its end."""
        span = self._span
        return Mark(
            topic=span.topic,
            run=span.run,
            partition=span.partition,
            next=span.end,
            time=self._stamper.time,
            times=span.times,
            lateness_us=self._spec.lateness_us,
            idle_after_us=self._spec.idle_after_us,
            follows_maker=self._spec.follows_maker,
            maker_watermark_us=span.maker_watermark_us,
            idle=span.idle,
            silence_us=span.silence_us,
            records=self._records,
            rows=self._rows,
            dead=self._dead,
            skipped=self._skipped,
            repeated=self._repeated,
        )

    def _runs(self) -> Iterator[tuple[int, memoryview]]:
        """Runs of batches, and the first offset that counts: a batch may begin with records that are gone."""
        span, start = self._span, self._span.start
        while start < span.end:
            try:
                for run in self._fetcher.fetch(
                    span.topic, span.partition, start, span.end, topic_id=span.topic_id, ahead=True
                ):
                    yield start, run
                return
            except OffsetsGone as gone:
                if self._spec.on_gap == "fail" or gone.first <= gone.asked:
                    raise RequestError(
                        f'{gone}. Or allow such gaps with on_gap="skip": they are counted', code=gone.code
                    ) from gone
                start = min(gone.first, span.end)
                self._skipped += start - gone.asked


def read_stamped(
    spec: StreamSpec,
    options: FeedOptions,
    start: Mapping[int, int] | None = None,
    end: Mapping[int, int] | None = None,
) -> Iterator[Stamped]:
    """All rows from `start` up to `end`, partition by partition: what the feed gives, in one process.

    By default from where the stream begins to the end of the log as it is now. A
    partition that `start` does not name begins at 0, as one added later does.
    """
    if spec.event_time == PROCESSING_TIME:
        raise ConfigError(
            f"{spec.topic} is on processing time: what it was cannot be read from the log again"
        )
    with RawFetcher(options.connection, max_bytes=options.max_fetch_bytes) as fetcher:
        first = first_position(fetcher, spec)
        begins = first.next if start is None else start
        for partition, last in sorted((end or fetcher.offsets(spec.topic, LATEST)).items()):
            span = FeedRange(
                topic=spec.topic,
                topic_id=first.topic_id,
                partition=partition,
                start=begins.get(partition, 0),
                end=last,
                times={partition: PartitionTime()},
                idle=frozenset(),
                silence_us=0,
                now_us=0,
            )
            yield from RangeReading(fetcher, spec, span)
