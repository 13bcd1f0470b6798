"""Records that a batch sends to topics."""

import pyarrow as pa

from headrace import App
from headrace.app.plans import plan_view
from headrace.app.records import derived_records, forgotten_records
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
        }
    )
    headers = [dict(record.headers)["headrace.source"] for record in derived_records(planned, [rows])]
    assert headers == [b"orders:0:7", b"orders:0:7:1", b"orders:0:8", b"orders:1:7"]


def test_a_record_of_forgotten_rows_says_which_window_they_were_for():
    table = pa.table(
        {
            "place": ["here"],
            "window_start": pa.array([60_000_000], pa.timestamp("us", "UTC")),
            "window_end": pa.array([120_000_000], pa.timestamp("us", "UTC")),
            "on_time": pa.array([2], pa.int64()),
            "corrected": pa.array([1], pa.int64()),
        }
    )
    (record,) = forgotten_records("shop", "orders", "counts", [table])
    assert {name.removeprefix("headrace.late."): value for name, value in record.headers} == {
        "reason": b"idle",
        "view": b"counts",
        "topic": b"orders",
        "rows": b"3",
        "window_start_us": b"60000000",
        "window_end_us": b"120000000",
    }
