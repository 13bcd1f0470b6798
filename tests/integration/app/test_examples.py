"""Every example on the records beside it: rows, changes, counters, and what was set aside, exactly."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic
from tools.example_pictures import Bar, Dot, kept, table, timeline
from tools.example_runs import START, folder, lines, play, raw

from headrace.app.loading import load_app
from headrace.app.options import RunOptions
from headrace.app.run.runner import running
from headrace.app.verify.command import verified
from headrace.client import Connection, admin, producer
from headrace.testing import run_app
from headrace.testing.broker import BrokerProcess

TIMEOUT_S = 240


def clock(moment: datetime) -> str:
    return moment.strftime("%H:%M:%S")


def listed(rows) -> list[tuple]:
    """Rows as tuples, in the order of the columns, with times of day."""
    return [
        tuple(clock(each) if isinstance(each, datetime) else each for each in row.values()) for row in rows
    ]


def published(changes) -> list[tuple]:
    """Batch, kind, and the aggregates before and after."""

    def values(row):
        return row and tuple(row[name] for name in row if not name.startswith("window_"))

    return [(each.batch_id, each.kind, values(each.before), values(each.after)) for each in changes]


def picture(run, number: int, view: str, lane: str, event_time: str) -> str:
    """The records and results of a windowed view over time."""
    late, dead = ({each.value for each in asides} for asides in (run.late, run.dead))
    dots = [
        Dot(line["value"][lane], happened(line, event_time), raw(line["value"]) in late)
        for line in lines(number)
        if "topic" in line and raw(line["value"]) not in dead
    ]
    old = {json.dumps(each.key): results(each.before) for each in run.changes(view) if each.kind == 2}
    keys = (lane, "window_start", "window_end")
    bars = [
        Bar(row[lane], row["window_start"], row["window_end"], results(row), old.get(key_of(row, keys), ""))
        for row in run.rows(view)
    ]
    shown = ", ".join(aggregates(run.rows(view)[0]))
    return timeline(dots, bars, shown)


def happened(line, event_time: str) -> datetime:
    """The event time, by a clock that was put right where the sender says when it sent."""
    value, at = line["value"], datetime.fromisoformat(line["at"])
    sent = datetime.fromisoformat(value["sent_at"]) if "sent_at" in value else at
    return datetime.fromisoformat(value[event_time]) + (at - sent)


def key_of(row, names) -> str:
    times = "%Y-%m-%dT%H:%M:%S.%fZ"
    key = {
        name: row[name].strftime(times) if isinstance(row[name], datetime) else row[name] for name in names
    }
    return json.dumps(key)


def aggregates(row) -> list[str]:
    return [*row][[*row].index("window_end") + 1 :]


def results(row) -> str:
    return ", ".join(str(row[name]) for name in aggregates(row))


PICTURED = [
    (1, "revenue_per_minute", "region", "placed_at"),
    (2, "best_sellers", "product", "placed_at"),
    (4, "visits", "visitor", "clicked_at"),
    (5, "warmest_per_minute", "sensor", "measured_at"),
    (8, "revenue_so_far", "region", "placed_at"),
]


@pytest.fixture
def played() -> Iterator:
    """Plays an example that needs no Spark; gives its run."""
    runs = []

    def start(number: int, spark=None):
        runs.append(run_app(folder(number) / "app.py", start=START, spark=spark))
        play(runs[-1], number)
        return runs[-1]

    yield start
    for run in runs:
        run.close()


def test_tumbling_drops_a_straggler_and_keeps_it(played):
    run = played(1)
    assert listed(run.rows("revenue_per_minute")) == [
        ("north", "09:00:00", "09:01:00", 27.25, 2),
        ("north", "09:01:00", "09:02:00", 15.0, 2),
        ("south", "09:00:00", "09:01:00", 10.0, 2),
        ("south", "09:01:00", "09:02:00", 9.0, 1),
    ]
    assert {each.kind for each in run.changes("revenue_per_minute")} == {0}
    assert run.counters("revenue_per_minute") == {"on_time": 7, "dropped": 1, "dead": 2}
    (late,) = run.late
    assert json.loads(late.value)["order_id"] == "o7"
    assert int(late.about["late_by_us"]) == 30_000_000
    assert int(late.about["window_end_us"]) - int(late.about["window_start_us"]) == 60_000_000
    assert [each.value[:9] for each in run.dead] == [b"{not JSON", b'{"order_i']


def test_hopping_counts_an_order_in_ten_windows(played):
    run = played(2)
    rows = listed(run.rows("best_sellers"))
    cups = [("cup", f"{8 + (52 + n) // 60:02}:{(52 + n) % 60:02}:00", 1, 1) for n in range(10)]
    assert [(row[0], row[1], row[3], row[4]) for row in rows if row[0] == "cup"] == cups
    assert [row[1:] for row in rows if row[0] == "tea"] == [
        ("08:51:00", "09:01:00", 2, 1),
        ("08:52:00", "09:02:00", 2, 1),
        *((f"08:{minute}:00", f"09:{minute - 50:02}:00", 14, 4) for minute in range(53, 60)),
        ("09:00:00", "09:10:00", 14, 4),
        ("09:01:00", "09:11:00", 12, 3),
        ("09:02:00", "09:12:00", 4, 2),
    ]
    assert run.counters("best_sellers") == {"on_time": 4, "dropped": 1}


def test_sessions_end_after_half_an_hour_of_silence(played):
    run = played(4)
    assert listed(run.rows("visits")) == [
        ("ada", "09:00:00", "10:12:00", 3, "/home", "/cart"),
        ("ada", "10:12:01", "10:42:01", 1, "/home", "/home"),
        ("bob", "09:20:00", "10:11:55", 2, "/cups", "/home"),
    ]
    assert run.counters("visits") == {"on_time": 6, "dropped": 1}
    assert json.loads(run.late[0].value)["page"] == "/tea"


def test_corrections_retract_and_correct_as_a_pair(played):
    run = played(5)
    assert listed(run.rows("warmest_per_minute")) == [
        ("cellar", "09:00:00", "09:01:00", 14.0, 13.0, 2),
        ("roof", "09:00:00", "09:01:00", 30.0, 24.0, 3),
        ("roof", "09:01:00", "09:02:00", 23.0, 22.0, 2),
    ]
    changes = published(run.changes("warmest_per_minute"))
    assert sorted(changes[:2], key=str) == [
        (0, 0, None, ("cellar", 12.0, 12.0, 1)),  # whose clock is six hours behind
        (0, 0, None, ("roof", 22.0, 21.0, 2)),
    ]
    assert changes[2:] == [
        (1, 2, ("roof", 22.0, 21.0, 2), ("roof", 30.0, 24.0, 3)),
        (2, 2, ("cellar", 12.0, 12.0, 1), ("cellar", 14.0, 13.0, 2)),
        (4, 0, None, ("roof", 23.0, 22.0, 2)),
    ]
    assert run.counters("warmest_per_minute") == {"on_time": 5, "corrected": 2}
    assert run.late == []


def test_early_results_are_published_from_the_first_row_on(played):
    run = played(8)
    assert listed(run.rows("revenue_so_far")) == [
        ("north", "09:00:00", "09:01:00", 25.0, 2),
        ("north", "09:01:00", "09:02:00", 12.0, 1),
        ("south", "09:00:00", "09:01:00", 7.0, 1),
    ]
    first, *second, third = published(run.changes("revenue_so_far"))
    assert first == (0, 1, None, ("north", 20.0, 1))
    assert sorted(second, key=str) == [
        (1, 1, ("north", 20.0, 1), ("north", 25.0, 2)),
        (1, 1, None, ("south", 7.0, 1)),
    ]
    assert third == (2, 1, None, ("north", 12.0, 1))  # and no change when the windows close
    assert run.counters("revenue_so_far") == {"on_time": 4, "dropped": 1}


@pytest.mark.parametrize(("number", "view", "lane", "event_time"), PICTURED)
def test_the_picture_in_the_documentation_is_what_comes_out(played, number, view, lane, event_time):
    drawn = picture(played(number), number, view, lane, event_time)
    assert kept(f"example_{number:02}", drawn) == drawn


# --- on Spark -----------------------------------------------------------------------------------

on_spark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]


@pytest.fixture
def own_log(tmp_path) -> Iterator[Connection]:
    """A log of the test's own, since examples share names of topics."""
    with BrokerProcess(tmp_path / "log") as broker:
        yield Connection(bootstrap_servers=broker.bootstrap, retry_timeout_ms=10_000)


def send_all(log: Connection, number: int) -> None:
    sender = producer(log)
    for line in lines(number):
        if "topic" in line:
            timestamp = int(datetime.fromisoformat(line["at"]).timestamp() * 1000)
            sender.produce(
                line["topic"], raw(line["value"]), partition=line["partition"], timestamp=timestamp
            )
    assert sender.flush(TIMEOUT_S) == 0


def filled(log: Connection, number: int) -> Connection:
    """The log with an example's records, which are old and must stay."""
    client = admin(log)
    for topic in {line["topic"] for line in lines(number) if "topic" in line}:
        wanted = NewTopic(topic, 4, 1, config={"retention.ms": "-1"})
        client.create_topics([wanted])[topic].result(TIMEOUT_S)
    send_all(log, number)
    return log


def run_on(log: Connection, number: int, data: Path, look, **limits):
    """Runs an example to the end of the log, and looks at the stores while they are open."""
    options = RunOptions(data=data, bootstrap=log.bootstrap_servers, until_caught_up=True, **limits)
    with running(load_app(folder(number) / "app.py"), options) as started:
        assert started.wait(TIMEOUT_S)
        return look(started.stores)


def committed(log: Connection, topic: str) -> list[tuple]:
    """Key and value of everything committed in a topic, by key."""
    reader = Consumer(
        {
            "bootstrap.servers": log.bootstrap_servers,
            "group.id": "examples",
            "isolation.level": "read_committed",
        }
    )
    found = []
    try:
        for partition in reader.list_topics(topic, TIMEOUT_S).topics[topic].partitions:
            place = TopicPartition(topic, partition, 0)
            _, end = reader.get_watermark_offsets(place, TIMEOUT_S)
            reader.assign([place])
            while end and reader.position([place])[0].offset < end:
                for message in reader.consume(100, 0.2):
                    assert message.error() is None
                    found.append((message.key(), json.loads(message.value())))
    finally:
        reader.close()
    return sorted(found, key=str)


FAILURES = [
    ("0815", 0, 3, "08:59:35", "09:00:35", 1),
    ("4711", 0, 0, "08:59:10", "09:00:10", 1),
    ("4711", 0, 2, "08:59:30", "09:00:30", 2),
    ("4711", 0, 4, "08:59:33", "09:00:33", 3),
    ("4711", 0, 5, "09:00:10", "09:01:10", 4),
]


TAXES = [("north", "09:00:00", "09:01:00", 475.0, 2), ("south", "09:01:00", "09:02:00", 380.1, 1)]


def large_order(order_id, region, amount, tax, at):
    when = f"2026-01-05T{at}.000000Z"
    return {"order_id": order_id, "region": region, "amount": amount, "tax": tax, "placed_at": when}


class TestOnSpark:
    pytestmark = on_spark

    def test_sliding_counts_failures_up_to_each(self, played, spark):
        run = played(3, spark)
        assert listed(run.rows("failures_within_a_minute")) == FAILURES
        counters = {"on_time": 5, "dropped": 1, "filtered": 1}
        assert run.counters("failures_within_a_minute") == counters
        assert json.loads(run.late[0].value)["payment_id"] == "p7"
        drawn = picture(run, 3, "failures_within_a_minute", "card", "paid_at")
        assert kept("example_03", drawn) == drawn

    @pytest.mark.slow
    def test_sliding_on_a_log_gives_the_same(self, own_log, spark, tmp_path):
        rows, counters = run_on(
            filled(own_log, 3),
            3,
            tmp_path,
            lambda stores: (
                listed(stores["failures_within_a_minute"].read("failures_within_a_minute").to_pylist()),
                stores["failures_within_a_minute"].reflected("failures_within_a_minute").counters,
            ),
        )
        assert rows == FAILURES[:-1]  # at the end of a log no clock closes the last one
        assert {name: count for name, count in counters.items() if count} == {
            "on_time": 5,
            "dropped": 1,
            "filtered": 1,
        }

    def test_a_derived_topic_holds_each_large_order_once_and_a_view_reads_it(
        self, own_log, played, spark, tmp_path
    ):
        def look(stores):
            store = stores["tax_per_minute"]
            return listed(store.read("tax_per_minute").to_pylist()), store.reflected(
                "tax_per_minute"
            ).counters

        rows, counters = run_on(filled(own_log, 6), 6, tmp_path, look)
        expected = [
            (b"o1", large_order("o1", "north", 1500.0, 285.0, "09:00:05")),
            (b"o3", large_order("o3", "south", 2000.5, 380.1, "09:01:00")),
            (b"o5", large_order("o5", "north", 1000.01, 190.0, "09:00:02")),
        ]
        assert committed(own_log, "large-orders") == expected
        assert rows == TAXES and {name: count for name, count in counters.items() if count} == {"on_time": 3}
        options = RunOptions(data=tmp_path, bootstrap=own_log.bootstrap_servers)
        (verdict,) = verified(load_app(folder(6) / "app.py"), options)
        assert verdict.is_equal and verdict.rows == 2
        shown = [[key.decode(), *row.values()] for key, row in expected]
        drawn = table(
            ["key", *expected[0][1]], [[*row, clock(datetime.fromisoformat(at))] for *row, at in shown]
        )
        assert kept("example_06", drawn) == drawn

        run = played(6, spark)
        in_memory = [(each.key, json.loads(each.value)) for each in run.topic("large-orders")]
        assert sorted(in_memory) == expected
        assert listed(run.rows("tax_per_minute")) == TAXES
        assert run.counters("tax_per_minute") == {"on_time": 3}
        dots = [Dot(row["region"], datetime.fromisoformat(row["placed_at"])) for _, row in in_memory]
        bars = [
            Bar(row["region"], row["window_start"], row["window_end"], results(row))
            for row in run.rows("tax_per_minute")
        ]
        drawn = timeline(dots, bars, "tax, orders")
        assert kept("example_06_per_minute", drawn) == drawn

    def test_a_plain_dataframe_is_a_view(self, own_log, spark, tmp_path):

        def look(stores):
            store = stores["orders_by_region"]
            rows = listed(store.read("orders_by_region").to_pylist())
            return rows, store.reflected("orders_by_region").batch_id

        rows, first = run_on(filled(own_log, 7), 7, tmp_path, look)
        assert (rows, first) == ([("north", 2), ("south", 1)], 0)
        send_all(own_log, 7)  # and once more: the query goes on from its checkpoint, a record at a time
        rows, batch_id = run_on(own_log, 7, tmp_path, look, max_records_per_batch=1)
        assert rows == [("north", 4), ("south", 2)]
        drawn = table(["region", "orders"], rows)
        assert kept("example_07", drawn) == drawn
        assert batch_id >= 3
