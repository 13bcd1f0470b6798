"""The feed without Spark, on ours and on Kafka: rows, times, restarts, gaps, and what goes wrong."""

import json
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from topics import add_partitions, create_topic, delete_records, delete_topic, send

from headrace.client import Connection, GroupOffsets, RawFetcher, declare_watermark, producer
from headrace.client.groups.offsets import CommittedOffset
from headrace.errors import ConfigError, RequestError
from headrace.streams.event_time import PartitionTime, operator_watermark
from headrace.streams.feed.options import FeedOptions
from headrace.streams.feed.planner import FeedPlanner
from headrace.streams.feed.positions import FeedPosition, Heartbeat, feed_ranges
from headrace.streams.feed.progress import GroupProgress
from headrace.streams.feed.reader import RangeReading, read_stamped
from headrace.streams.spec import PROCESSING_TIME, StreamSpec

NOW_MS = 1_767_225_600_000
SECOND = 1_000_000


class HandClock:
    """A clock that a test moves; the wall clock and the monotone one apart."""

    def __init__(self):
        self.wall_ms = NOW_MS
        self.span_ms = 5

    def now_ms(self):
        return self.wall_ms

    def monotonic_ms(self):
        return self.span_ms


def events(*seconds, **fields):
    """Values whose event time is so many seconds after NOW."""
    return [{"at": NOW_MS + second * 1000, "number": second, **fields} for second in seconds]


def us(second):
    return (NOW_MS + second * 1000) * 1000


def stream(topic, **changes):
    given = {"schema": "at long, number long", "event_time": "at", "lateness_us": 2 * SECOND, "group": ""}
    # Tests write events of any time; the bound on how far ahead they may be has tests of its own.
    return StreamSpec(topic=topic, **{**given, "max_ahead_us": 10**15, **changes})


class Run:
    """A query without Spark: plans batches, reads them, and keeps positions as Spark's checkpoint does."""

    def __init__(self, log: Connection, spec, position=None, commit=True, **options):
        self.spec = spec
        self.options = FeedOptions(connection=log, **options)
        self.clock = HandClock()
        self.planner = FeedPlanner(spec, self.options, clock=self.clock)
        self.position = position or self.planner.first()
        self.commit = commit and bool(spec.group)
        self.log = log

    def batch(self, **limits):
        """Runs one micro-batch; (rows, marks), or None if there is nothing to do."""
        following = self.planner.following(self.position, self.planner.latest(), **limits)
        if following is self.position:
            return None
        # As Spark does: through JSON.
        self.position = FeedPosition.from_json(json.loads(json.dumps(following.to_json())))
        return self.carry_out(self.position)

    def carry_out(self, position):
        rows, marks = [], []
        with RawFetcher(self.log) as fetcher:
            for span in feed_ranges(position):
                reading = RangeReading(fetcher, self.spec, span)
                for stamped in reading:
                    rows += stamped.rows.to_pylist()
                marks.append(reading.mark())
        if self.commit:
            progress = GroupProgress(self.log, self.spec.group, self.spec.topic, position.run)
            progress.commit(
                position.next, dict(position.times) | {mark.partition: mark.time for mark in marks}
            )
            progress.close()
        return rows, marks

    def restarted(self, **changes):
        """The same query in a new process, which has the checkpoint and nothing else."""
        self.planner.close()
        settings = {"heartbeat": self.options.heartbeat}
        return Run(self.log, replace(self.spec, **changes), self.position, self.commit, **settings)


def numbers(rows):
    return [row["number"] for row in rows]


def test_rows_carry_their_event_time_and_the_watermark_before_them(log):
    topic = create_topic(log)
    send(log, topic, events(10, 5, 20, 17))
    rows, [mark] = Run(log, stream(topic)).batch()
    assert [row["_event_time"] for row in rows] == [us(10), us(5), us(20), us(17)]
    assert [row["_watermark"] for row in rows][1:] == [us(8), us(8), us(18)]
    assert [(row["_partition"], row["_offset"]) for row in rows] == [(0, n) for n in range(4)]
    assert (mark.next, mark.time, mark.records) == (4, PartitionTime(us(20)), 4)


def test_the_watermark_goes_on_over_batches_and_restarts_as_if_there_were_none(log):
    topic = create_topic(log, partitions=2)
    seconds = [3, 9, 1, 12, 12, 4, 30, 2, 31, 40]
    for partition in (0, 1):
        send(log, topic, events(*seconds), partition=partition)
    run = Run(log, stream(topic, group=f"g-{topic}"))
    rows = []
    while (batch := run.batch(max_records=6)) is not None:
        rows += batch[0]
        run = run.restarted()
    whole = [row for stamped in read_stamped(run.spec, run.options) for row in stamped.rows.to_pylist()]
    assert sorted(rows, key=lambda row: (row["_partition"], row["_offset"])) == whole
    assert len(whole) == 20


@pytest.mark.parametrize("harm", ["removed", "of another offset", "of another run", "not JSON"])
def test_a_note_that_cannot_be_used_is_computed_again_from_the_log(log, harm):
    topic = create_topic(log)
    send(log, topic, events(10, 50, 20))
    run = Run(log, stream(topic, group=f"g-{topic}"))
    run.batch()
    noted = GroupOffsets(log, run.spec.group)
    [(_, kept)] = noted.fetch(topic, [0]).items()
    if harm == "removed":
        noted.commit(topic, {0: CommittedOffset(3, "")})
    elif harm == "of another offset":
        noted.commit(topic, {0: CommittedOffset(2, kept.metadata)})
    elif harm == "of another run":
        lie = json.dumps({"run": "other", "seen": us(99), "declared": None})
        noted.commit(topic, {0: CommittedOffset(3, lie)})
    else:
        noted.commit(topic, {0: CommittedOffset(3, "[")})
    send(log, topic, events(30))
    [row], _ = run.restarted().batch()
    assert row["_watermark"] == us(48)


def test_the_note_spares_reading_the_last_batch_again(log):
    topic = create_topic(log)
    send(log, topic, events(10))
    run = Run(log, stream(topic, group=f"g-{topic}"))
    run.batch()
    GroupProgress(log, run.spec.group, topic, run.position.run).commit({0: 1}, {0: PartitionTime(us(70))})
    send(log, topic, events(20))
    [row], _ = run.restarted().batch()
    assert row["_watermark"] == us(68)


def test_progress_shows_as_a_consumer_groups_offsets(log):
    topic = create_topic(log)
    send(log, topic, events(1, 2, 3))
    Run(log, stream(topic, group=f"g-{topic}")).batch()
    from confluent_kafka import ConsumerGroupTopicPartitions

    from headrace.client import admin

    client = admin(log, metadata_recovery_strategy="none")
    asked = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(f"g-{topic}")])
    [found] = asked[f"g-{topic}"].result(30).topic_partitions
    assert (found.topic, found.partition, found.offset) == (topic, 0, 3)


def test_a_partition_added_to_a_running_topic_is_read_from_its_beginning(log):
    topic = create_topic(log)
    send(log, topic, events(10))
    run = Run(log, stream(topic))
    run.batch()
    add_partitions(log, topic, 2)
    send(log, topic, events(5, 6), partition=1)
    run.clock.span_ms += 1000
    rows, [mark] = run.batch()
    assert [(row["_partition"], row["number"]) for row in rows] == [(1, 5), (1, 6)]
    # Nothing stood before it in its own partition, so its first row is not late.
    assert rows[0]["_watermark"] < 0
    assert operator_watermark([mark]) == us(4)


def test_a_topic_that_was_made_anew_is_refused(log):
    topic = create_topic(log)
    send(log, topic, events(10))
    run = Run(log, stream(topic))
    run.batch()
    delete_topic(log, topic)
    create_topic(log, name=topic)
    send(log, topic, events(1, 2, 3))
    with pytest.raises(RequestError, match="deleted and created again"):
        run.restarted().batch()


def test_records_that_retention_took_stop_the_feed_and_are_named(log):
    topic = create_topic(log)
    send(log, topic, events(*range(10)), batch_num_messages=1)
    run = Run(log, stream(topic))
    run.batch(max_records=3)
    delete_records(log, topic, 7)
    with pytest.raises(
        RequestError, match=rf"{topic}-0: records from offset 3 were removed.*7 to 10.*on_gap"
    ):
        run.batch()


@pytest.mark.parametrize("batch_records", [1, 10], ids=["between batches", "within a batch"])
def test_an_allowed_gap_is_counted_to_the_offset(log, batch_records):
    topic = create_topic(log)
    send(log, topic, events(*range(10)), batch_num_messages=batch_records)
    run = Run(log, stream(topic, on_gap="skip"))
    run.batch(max_records=3)
    delete_records(log, topic, 7)
    rows, [mark] = run.batch()
    assert numbers(rows) == [7, 8, 9]
    assert (mark.skipped, mark.records, mark.next) == (4, 3, 10)


def test_a_range_that_is_gone_as_a_whole_is_a_gap_as_a_whole(log):
    topic = create_topic(log)
    send(log, topic, events(*range(10)), batch_num_messages=1)
    run = Run(log, stream(topic, on_gap="skip"))
    planned = run.planner.following(run.position, run.planner.latest(), max_records=4)
    delete_records(log, topic, 8)
    rows, [mark] = run.carry_out(planned)
    assert (rows, mark.skipped, mark.next) == ([], 4, 4)


def test_a_producers_watermark_moves_its_partition_and_is_no_row(log):
    topic = create_topic(log)
    client = producer(log)
    client.produce(topic, json.dumps(events(10)[0]).encode(), partition=0)
    declare_watermark(client, topic, NOW_MS + 60_000, partitions=[0])
    client.produce(topic, json.dumps(events(15)[0]).encode(), partition=0)
    assert client.flush(30) == 0
    rows, [mark] = Run(log, stream(topic)).batch()
    assert [(row["number"], row["_watermark"]) for row in rows[1:]] == [(15, us(60))]
    assert (mark.time, mark.records, mark.rows) == (PartitionTime(us(10 + 5), us(60)), 3, 2)


def test_an_idle_partition_lets_the_others_go_on(log):
    topic = create_topic(log, partitions=2)
    for partition, second in ((0, 10), (1, 100)):
        send(log, topic, events(second), partition=partition)
    run = Run(
        log,
        stream(topic, idle_after_us=30 * SECOND),
        heartbeat=Heartbeat(interval_us=SECOND, until_us=SECOND),
    )
    _, marks = run.batch()
    assert operator_watermark(marks) == us(8)
    run.clock.span_ms += 20_000
    send(log, topic, events(101), partition=1)
    assert operator_watermark(run.batch()[1]) == us(8)
    run.clock.span_ms += 15_000  # 35 s of silence in partition 0, 15 s in partition 1
    rows, marks = run.batch()
    assert (rows, [mark.idle for mark in marks]) == ([], [frozenset({0})])
    assert operator_watermark(marks) == us(99)
    assert run.batch() is None


def test_when_input_stops_time_goes_on_until_nothing_is_left_to_close(log):
    topic = create_topic(log)
    send(log, topic, events(10))
    beat = Heartbeat(interval_us=5 * SECOND, until_us=60 * SECOND)
    run = Run(log, stream(topic, idle_after_us=10 * SECOND), heartbeat=beat)
    run.batch()
    watermarks = []
    for _ in range(100):
        run.clock.span_ms += 1000
        run.clock.wall_ms -= 3_600_000  # whatever the wall clock does
        if (batch := run.batch()) is not None:
            watermarks.append(operator_watermark(batch[1]))
    assert watermarks == [us(8 + second) for second in range(10, 66, 5)]


def test_a_restart_does_not_forget_the_silence(log):
    topic = create_topic(log)
    send(log, topic, events(10))
    run = Run(
        log, stream(topic, idle_after_us=10 * SECOND), heartbeat=Heartbeat(interval_us=SECOND, until_us=10**9)
    )
    run.batch()
    assert run.batch() is None
    run.clock.span_ms += 30_000
    assert operator_watermark(run.batch()[1]) == us(8 + 30)
    run = run.restarted()
    assert run.batch() is None
    run.clock.span_ms += 5000
    assert operator_watermark(run.batch()[1]) == us(8 + 35)


def test_a_limit_in_bytes_holds_whatever_the_size_of_records(log):
    topic = create_topic(log, partitions=2)
    send(log, topic, events(*range(1000)), partition=0, batch_num_messages=50)
    send(log, topic, events(*range(100), text="x" * 10_000), partition=1, batch_num_messages=5)
    run = Run(log, stream(topic))
    sizes = []
    while (batch := run.batch(max_bytes=200_000)) is not None:
        large = sum(row["_partition"] for row in batch[0])
        sizes.append(large * 10_000 + (len(batch[0]) - large) * 70)
    assert len(sizes) >= 5
    assert max(sizes) < 200_000 + 50 * 70 + 5 * 10_100, "the limit, and a record batch of each partition"
    # Few offsets, after many small ones: what they take is asked of the log, not of what was before.
    send(log, topic, events(*range(100), text="x" * 10_000), partition=0, batch_num_messages=1)
    send(log, topic, events(7), partition=1)
    taken = []
    while (batch := run.batch(max_bytes=200_000)) is not None:
        taken.append(sum(row["_partition"] == 0 for row in batch[0]))
    assert sum(taken) == 100
    assert max(taken) <= 20, "and a batch of one record is cut at its very end"
    # A record that is larger than the limit comes alone.
    send(log, topic, events(1, 2, 3, text="x" * 300_000), partition=0, batch_num_messages=1)
    assert [len(run.batch(max_bytes=200_000)[0]) for _ in range(3)] == [1, 1, 1]


def test_a_limit_in_bytes_holds_behind_a_gap(log):
    topic = create_topic(log)
    send(log, topic, events(*range(100), text="x" * 10_000), batch_num_messages=1)
    run = Run(log, stream(topic, on_gap="skip"))
    delete_records(log, topic, 50)
    rows, [mark] = run.batch(max_bytes=200_000)
    assert mark.skipped == 50
    assert 0 < len(rows) <= 20


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("1:3", [[0, 1, 2, 3, 4, 5], [3, 4, 5]]),
        ("latest", [[5], [5]]),
        ("time", [[2, 3, 4, 5], [5]]),  # what is left of partition 1 is all older
    ],
)
def test_a_query_begins_where_it_starts_and_is_read_again_from_there(log, start, expected):
    topic = create_topic(log, partitions=2)
    minute_ago = int(time.time() * 1000) - 60_000
    for partition, first_ms in ((0, minute_ago), (1, minute_ago - 600_000)):
        times = [first_ms + 1000 * number for number in range(5)]
        send(log, topic, events(*range(5)), partition=partition, at_ms=times)
    if start == "time":
        start = datetime.fromtimestamp((minute_ago + 2000) / 1000, UTC).isoformat()
    run = Run(log, stream(topic, start=start))
    begins = tuple(run.position.next.items())
    for partition in (0, 1):
        send(log, topic, events(5), partition=partition)

    def by_partition(rows):
        return [[row["number"] for row in rows if row["_partition"] == each] for each in (0, 1)]

    rows, _ = run.batch()
    assert by_partition(rows) == expected
    # Once it is known where a query began, that is where it begins, whatever its start stands for by now.
    known = replace(run.spec, begins=begins)
    assert by_partition(Run(log, known).batch()[0]) == expected
    again = [row for stamped in read_stamped(known, run.options) for row in stamped.rows.to_pylist()]
    assert again == sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))


def test_a_start_in_a_partition_that_is_not_there_is_refused(log):
    topic = create_topic(log, partitions=2)
    with pytest.raises(RequestError, match="start names partition 7"):
        Run(log, stream(topic, start='{"7": 1}'))


def test_processing_time_is_that_of_the_plan_and_never_goes_back(log):
    topic = create_topic(log)
    send(log, topic, events(10))
    run = Run(log, stream(topic, event_time=PROCESSING_TIME))
    [row], _ = run.batch()
    assert row["_event_time"] == NOW_MS * 1000
    assert run.carry_out(run.position)[0] == [row]
    run.clock.wall_ms -= 60_000
    send(log, topic, events(11))
    [row], _ = run.batch()
    assert row["_event_time"] == NOW_MS * 1000
    with pytest.raises(ConfigError, match="processing time"):
        next(read_stamped(run.spec, run.options))
