"""Records that a batch sends to topics."""

import json

import pyarrow as pa

from headrace import App
from headrace.app.plan.plan import plan_view
from headrace.app.query.sinks.side_topics import RowTopic, SideTopics
from headrace.client.deadletters import read_dead_letter
from headrace.streams.operators import WindowOperator, agg, hopping
from headrace.streams.spec import rows_schema
from headrace.testing import run_app


def test_a_derived_record_says_where_it_came_from():
    app = App("shop")
    orders = app.stream("orders", schema="id string", partitions=2)
    app.topic("copies", key="id")(lambda: orders)
    with run_app(app) as run:
        for number in range(3):
            run.send("orders", {"id": f"o-{number}"}, partition=number % 2)
        run.batch()
        found = {record.key: dict(record.headers)["headrace.source"] for record in run.topic("copies")}
    assert found == {b"o-0": b"orders:0:0", b"o-1": b"orders:1:0", b"o-2": b"orders:0:1"}


def test_rows_of_one_record_are_told_apart():
    app = App("shop")
    orders = app.stream("orders", schema="id string")
    app.topic("rows")(lambda: orders)
    planned = plan_view(app.views["rows"], orders, rows_schema(orders.spec))
    rows = pa.table(
        {
            "id": ["a", "b", "c", "d"],
            "_timestamp": pa.array([0, 0, 0, 0], pa.timestamp("us", "UTC")),
            "_partition": pa.array([0, 0, 0, 1], pa.int32()),
            "_offset": pa.array([7, 7, 8, 7], pa.int64()),
            "_event_time": pa.array([0, 0, 0, 0], pa.int64()),
            "_watermark": pa.array([0, 0, 0, 0], pa.int64()),
        }
    )
    headers = [
        dict(record.headers)["headrace.source"]
        for record in SideTopics("shop").derived(RowTopic.of(planned), [rows])
    ]
    assert headers == [b"orders:0:7", b"orders:0:7:1", b"orders:0:8", b"orders:1:7"]


def test_the_letter_of_a_step_that_raised_names_step_view_and_place_and_is_shortened_like_any():
    row = json.dumps({"text": "x" * 50_000})
    failed = pa.table(
        {
            "_partition": pa.array([3], pa.int32()),
            "_offset": pa.array([17], pa.int64()),
            "_event_time": pa.array([5], pa.int64()),
            "step": pa.array([1], pa.int32()),
            "row": [row],
        }
    )
    steps = ["where a > 1", "with n=" + "y" * 9_000]
    for most_bytes in (1_000_000, 10_000):
        topics = SideTopics("shop", {"shop.dead": most_bytes})
        (letter,) = topics.failed("orders", "sums", "q1", steps, [failed])
        assert (letter.topic, letter.key) == ("shop.dead", None)
        assert row.encode().startswith(letter.value)
        assert (letter.value == row.encode()) == (most_bytes == 1_000_000)
        said = read_dead_letter(letter.headers)
        assert (said.source, said.view, said.owner) == (("orders", 3, 17), "sums", "q1")
        assert said.reason.startswith("with n=yyy") and len(said.reason) < 520
        assert (said.truncated is None) == (most_bytes == 1_000_000)


def derived_of(places):
    """Sources of the records that are made of rows at (partition, offset, watermark), in their order."""
    app = App("shop")
    orders = app.stream("orders", schema="id string")
    app.topic("rows")(lambda: orders)
    planned = plan_view(app.views["rows"], orders, rows_schema(orders.spec))
    partitions, offsets, watermarks = zip(*places, strict=True)
    rows = pa.table(
        {
            "id": ["a"] * len(places),
            "_timestamp": pa.array([0] * len(places), pa.timestamp("us", "UTC")),
            "_partition": pa.array(partitions, pa.int32()),
            "_offset": pa.array(offsets, pa.int64()),
            "_event_time": pa.array([9] * len(places), pa.int64()),
            "_watermark": pa.array(watermarks, pa.int64()),
        }
    )
    return [dict(record.headers) for record in SideTopics("shop").derived(RowTopic.of(planned), [rows])]


def test_derived_records_of_several_partitions_are_merged_by_the_watermarks_they_have_reached():
    found = derived_of([(1, 0, -(2**63)), (1, 1, 15), (0, 0, -(2**63)), (0, 1, 10), (0, 2, 20)])
    places = [headers["headrace.source"].decode().removeprefix("orders:") for headers in found]
    assert places == ["0:0", "1:0", "0:1", "1:1", "0:2"]


def test_derived_records_of_one_partition_stay_in_order_whatever_their_watermarks():
    found = derived_of([(0, 0, 30), (0, 1, 10), (1, 0, 20), (0, 2, 5)])
    places = [headers["headrace.source"].decode().removeprefix("orders:") for headers in found]
    assert places == ["1:0", "0:0", "0:1", "0:2"]


def test_a_derived_record_tells_the_time_and_the_watermark_of_its_row():
    found = derived_of([(0, 0, -(2**63)), (0, 1, 7)])
    assert [headers["headrace.source.time"] for headers in found] == [b"9:", b"9:7"]


def test_a_record_of_forgotten_rows_says_which_window_they_were_for():
    table = pa.table(
        {
            "place": ["here"],
            "_window_start": [60_000_000],
            "_window_end": [120_000_000],
            "_missed_windows": [1],
            "_every": [0],
            "_counted_from": pa.array([None], pa.int64()),
            "_on_time": [2],
            "_corrected": [1],
            "_dropped": [0],
        }
    )
    (record,) = SideTopics("shop").forgotten("orders", "counts", [table])
    assert {name.removeprefix("headrace.late."): value for name, value in record.headers} == {
        "reason": b"idle",
        "view": b"counts",
        "topic": b"orders",
        "rows": b"3",
        "window_start_us": b"60000000",
        "window_end_us": b"120000000",
        "missed_windows": b"1",
    }
    assert json.loads(record.value) == {"place": "here"}


def test_a_late_record_says_which_windows_it_missed_and_from_when_it_counts_all_the_same():
    operator = WindowOperator(hopping("10 s", every="2 s"), ("k",), (("n", agg.count()),))
    rows = pa.table(
        {
            "k": ["a"],
            "_partition": pa.array([3], pa.int32()),
            "_offset": [7],
            "_event_time": [5_000_000],
            "_watermark": [9_000_000],
        }
    )
    table = operator.missed(rows).append_column("key", [[b"key"]]).append_column("value", [[b"value"]])
    for name in ("_partition", "_offset", "_event_time", "_watermark"):
        table = table.append_column(name, rows[name])
    (record,) = SideTopics("shop").late("orders", "counts", [table])
    assert (record.topic, record.key, record.value) == ("shop.late", b"key", b"value")
    said = {name.removeprefix("headrace.late."): value.decode() for name, value in record.headers}
    assert {name: said[name] for name in ("reason", "partition", "offset", "late_by_us")} == {
        "reason": "late",
        "partition": "3",
        "offset": "7",
        "late_by_us": "4000000",
    }
    # Of the windows that end at 6, 8, 10, 12 and 14 s the first two had ended.
    assert (said["window_start_us"], said["window_end_us"]) == ("-4000000", "6000000")
    assert (said["missed_windows"], said["every_us"]) == ("2", "2000000")
    assert said["counted_from_us"] == "10000000"


def test_what_is_larger_than_its_topic_takes_becomes_a_letter_or_is_shortened():
    """Nothing that a log takes stops a pipeline: dead, late and derived records alike."""
    app = App("shop")
    orders = app.stream("orders", schema="id string")
    app.topic("rows", key="id")(lambda: orders)
    planned = plan_view(app.views["rows"], orders, rows_schema(orders.spec))
    ids = ["small", "x" * 2_000]
    rows = pa.table(
        {
            "id": ids,
            "_timestamp": pa.array([0, 0], pa.timestamp("us", "UTC")),
            "_partition": pa.array([0, 0], pa.int32()),
            "_offset": pa.array([7, 8], pa.int64()),
            "_event_time": pa.array([0, 0], pa.int64()),
            "_watermark": pa.array([0, 0], pa.int64()),
        }
    )
    limits = dict.fromkeys(("rows", "shop.dead", "shop.late"), 1_000)
    row, letter = SideTopics("shop", limits).derived(RowTopic.of(planned), [rows])
    assert (row.topic, row.key, letter.topic) == ("rows", b"small", "shop.dead")
    assert read_dead_letter(letter.headers).reason.startswith("row too large for its topic: rows does not")
    for each in (row, letter):
        assert len(each.key or b"") + len(each.value) < 1_000
