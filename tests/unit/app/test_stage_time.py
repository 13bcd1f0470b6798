"""What a second stage counts: by the log of the first alone, however batches were cut."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from headrace import App, agg, tumbling
from headrace.testing import run_app
from headrace.testing.topic_feed import partition_of

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
PARTITIONS = 4


def in_order(count):
    """Events five seconds apart, dealt out to the partitions in turn: none is ever late."""
    return [
        (number % PARTITIONS, 5 * number, f"k{number * 7 % 11}", f"u{number * 5 % 13}")
        for number in range(count)
    ]


def in_disorder(count, seed):
    """Partitions that are ahead of each other, and stragglers of all ages in each.

    All of them begin at once: one that was never written holds up nobody.
    """
    chance = random.Random(seed)
    print("seed", seed)
    ahead = [chance.choice((0, 0, 40, 400)) for _ in range(PARTITIONS)]
    found = []
    for number in range(count):
        partition = number if number < PARTITIONS else chance.randrange(PARTITIONS)
        second = 5 * number + ahead[partition] - chance.choice((0, 0, 0, 5, 15, 90, 300))
        found.append((partition, max(0, second), f"k{chance.randrange(11)}", f"u{chance.randrange(13)}"))
    return found


def application(*, first=None, second=None, stages=2):
    """Events keyed by user, made into topics with other keys, and counted behind the last of them."""
    app = App("shop")
    schema = "key string, user string, at timestamp, other timestamp"
    time = {"event_time": "at", "lateness": "10 seconds", "partitions": PARTITIONS}
    stream = app.stream("s1", schema=schema, **(time | (first or {})))
    for number in range(2, stages + 1):
        app.topic(f"s{number}", key="key" if number % 2 == 0 else "user")(lambda stream=stream: stream)
        stream = app.stream(f"s{number}", schema=schema, **(time | (second or {})))
    app.view(name="counted")(lambda: stream.window(tumbling("1 minute"), by="user").agg(n=agg.count()))
    return app


def run(app, events, *, batch, other=timedelta(0)):
    """The counted windows and the counters, after batches of so many records and a long silence."""
    with run_app(app, start=START + timedelta(hours=1)) as started:
        for number, (partition, second, key, user) in enumerate(events):
            at = START + timedelta(seconds=second)
            value = {"key": key, "user": user, "at": at.isoformat(), "other": (at + other).isoformat()}
            started.send("s1", value, partition=partition)
            if number % batch == batch - 1:
                started.batch()
        started.stop_input()
        rows = {(row["user"], row["window_start"]): row["n"] for row in started.rows("counted")}
        return rows, started.counters("counted")


def expected(events, *, lateness=10, size=60):
    """A row counts unless its window had ended by the watermark of its own partition of the first topic."""
    highest: dict[int, float] = {}
    counted: Counter = Counter()
    for partition, second, _, user in events:
        end = (second // size + 1) * size
        if end > highest.get(partition, float("-inf")) - lateness:
            counted[user, START + timedelta(seconds=end - size)] += 1
        highest[partition] = max(highest.get(partition, float("-inf")), second)
    return dict(counted)


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("batch", [7, 50, 600])
def test_of_events_in_order_a_later_stage_drops_none_however_batches_are_cut(batch, stages):
    events = in_order(600 if batch > 7 else 200)
    rows, counters = run(application(stages=stages), events, batch=batch)
    assert (counters["on_time"], counters.get("dropped", 0)) == (len(events), 0)
    assert rows == expected(events)


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("seed", [1, *(pytest.param(each, marks=pytest.mark.slow) for each in range(2, 20))])
def test_what_a_later_stage_counts_follows_from_the_first_log_alone(seed, stages):
    events = in_disorder(250, seed)
    wanted = expected(events)
    assert 0 < sum(wanted.values()) < len(events), "some are late"
    found = [run(application(stages=stages), events, batch=batch) for batch in (7, 50, len(events))]
    for rows, counters in found:
        assert rows == wanted
        assert (counters["on_time"], counters["dropped"]) == (
            sum(wanted.values()),
            len(events) - sum(wanted.values()),
        )


def test_rows_of_a_partition_that_begins_later_correct_every_stage_alike():
    """Those behind, which held up nobody before the partition had a record."""
    others = [event for event in in_order(120) if event[0] != 3]
    behind = [(3, second - 120, key, "u0") for _, second, key, _ in in_order(120)[43::4]]
    events = sorted(others + behind, key=lambda event: event[1] + 120 * (event[0] == 3))
    wanted = expected(events)
    found = [run(application(stages=stages), events, batch=7) for stages in (1, 2, 3)]
    for rows, counters in found:
        assert rows == wanted
        assert counters == found[0][1]
        assert counters["corrected"] > 0


@pytest.mark.parametrize(("first", "second"), [(120, 10), (10, 120), (0, 0)])
def test_a_second_stage_waits_as_long_as_the_first_or_longer_if_it_says_so(first, second):
    events = in_disorder(250, 4)
    app = {"first": {"lateness": f"{first} seconds"}, "second": {"lateness": f"{second} seconds"}}
    wanted = expected(events, lateness=max(first, second))
    for batch in (7, len(events)):
        assert run(application(**app), events, batch=batch)[0] == wanted


def test_a_second_stage_that_names_no_event_time_has_that_of_the_first():
    events = in_disorder(250, 5)
    for batch in (7, len(events)):
        rows, _ = run(application(second={"event_time": None}), events, batch=batch)
        assert rows == expected(events)


def expected_by_source(events, *, lateness=10, size=60):
    """As `expected`, by what went from one partition of the first topic to one of the second."""
    highest: dict[tuple[int, int], float] = {}
    counted: Counter = Counter()
    for partition, second, key, user in events:
        way = partition, partition_of(key.encode(), PARTITIONS)
        end = (second // size + 1) * size
        if end > highest.get(way, float("-inf")) - lateness:
            counted[user, START + timedelta(seconds=end - size)] += 1
        highest[way] = max(highest.get(way, float("-inf")), second)
    return dict(counted)


@pytest.mark.parametrize("other", [timedelta(0), timedelta(days=-3), timedelta(minutes=50)])
def test_a_second_stage_with_another_event_time_judges_rows_by_those_of_the_same_source(other):
    events = in_disorder(250, 6)
    wanted = expected_by_source(events)
    assert 0 < sum(wanted.values()) < len(events), "some are late"
    for batch in (7, 50, len(events)):
        app = application(second={"event_time": "other"})
        rows, _ = run(app, events, batch=batch, other=other)
        assert {(user, start - other): n for (user, start), n in rows.items()} == wanted


def test_late_rows_correct_a_second_stage_wherever_batches_are_cut():
    events = in_disorder(250, 7)
    late = {"late": "correct", "correct_for": "30 minutes"}
    wanted = expected(events, lateness=10 + 30 * 60)
    for batch in (7, len(events)):
        rows, counters = run(application(second=late), events, batch=batch)
        assert rows == wanted
        assert counters["on_time"] == sum(expected(events).values())


def test_rows_of_others_on_a_derived_topic_are_judged_among_themselves():
    with run_app(application(), start=START + timedelta(hours=1)) as started:
        at = {second: (START + timedelta(seconds=second)).isoformat() for second in (0, 100, 500, 1000)}
        started.send("s1", {"key": "k", "user": "u", "at": at[1000]})
        started.batch()
        for second in (0, 500, 100):
            started.send("s2", {"key": "k", "user": "other", "at": at[second]})
        started.stop_input()
        rows = {(row["user"], row["window_start"]): row["n"] for row in started.rows("counted")}
        counters = started.counters("counted")
    minutes = {("other", 0): 1, ("other", 480): 1, ("u", 960): 1}
    assert rows == {(user, START + timedelta(seconds=at)): n for (user, at), n in minutes.items()}
    assert (counters["on_time"] + counters.get("corrected", 0), counters["dropped"]) == (3, 1)


def test_a_watermark_that_a_producer_declares_in_the_first_topic_closes_windows_of_the_second():
    with run_app(application(), start=START + timedelta(minutes=10)) as started:
        started.send("s1", {"key": "k", "user": "u", "at": START.isoformat()})
        started.batch()
        assert started.rows("counted") == []
        end = int((START + timedelta(minutes=1)).timestamp() * 1000)
        started.send("s1", None, headers=[("headrace.watermark", str(end).encode())])
        assert [row["n"] for row in started.rows("counted")] == [1]


def test_an_idle_partition_of_the_first_topic_holds_up_the_second_as_it_does_the_first():
    with run_app(application(), start=START + timedelta(minutes=10)) as started:
        started.send("s1", {"key": "k", "user": "u", "at": START.isoformat()}, partition=0)
        started.send("s1", {"key": "k", "user": "u", "at": START.isoformat()}, partition=1)
        later = (START + timedelta(minutes=2)).isoformat()
        started.send("s1", {"key": "k", "user": "u", "at": later}, partition=0)
        assert started.rows("counted") == []
        started.advance("4 seconds")
        started.send("s1", {"key": "k", "user": "u", "at": later}, partition=0)
        assert started.rows("counted") == []
        started.advance("4 seconds")
        assert [row["n"] for row in started.rows("counted")] == [2]


def test_a_second_stage_closes_its_windows_by_the_clock_when_all_input_is_silent():
    with run_app(application(stages=3), start=START + timedelta(seconds=1)) as started:
        started.send("s1", {"key": "k", "user": "u", "at": START.isoformat()})
        started.advance("30 seconds")
        assert started.rows("counted") == []
        started.advance("60 seconds")
        assert [row["n"] for row in started.rows("counted")] == [1]
        assert len(started.topic("s2")) == 1, "time is told beside the topic"
