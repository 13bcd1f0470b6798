"""The log as Spark's data source, on ours and on Kafka: rows, positions, and what goes wrong."""

import json
import time

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from topics import add_partitions, create_topic, delete_records, delete_topic, send

from headrace.client import producer

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SCHEMA = "name string, number long"


def orders(count, first=0):
    return [
        {"name": f"n{number}", "number": number, "ignored": [1, 2]} for number in range(first, first + count)
    ]


def reader(kind, log, topic, schema=SCHEMA, **options):
    source = kind.format("headrace").option("topic", topic).option("bootstrap_servers", log.bootstrap_servers)
    source = source.option("retry_timeout_ms", log.retry_timeout_ms)
    for name, value in options.items():
        source = source.option(name, value)
    return (source.schema(schema) if schema else source).load()


def stream_to(frame, checkpoint):
    """Runs a query over everything available; the micro-batches' rows, those without rows left out."""
    batches = []

    def keep(batch, batch_id):
        batches.append([tuple(row) for row in batch.collect()])

    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination(120)
    return [batch for batch in batches if batch]


def test_a_batch_read_has_the_fields_of_the_schema_and_the_columns_about_the_record(spark, log):
    topic = create_topic(log, partitions=2)
    send(log, topic, orders(3), partition=1)
    frame = reader(
        spark.read, log, topic, "number long, _partition int, _offset long, name string, _topic string"
    )
    assert sorted(map(tuple, frame.collect())) == [(n, 1, n, f"n{n}", topic) for n in range(3)]


def test_key_headers_and_time_of_a_record_are_columns_beside_its_fields(spark, log):
    topic, then = create_topic(log), (int(time.time()) - 60) * 1000 + 7
    client = producer(log)
    headers = [("h", b"\xff"), ("h", b""), ("none", None)]
    client.produce(topic, b'{"number": 1}', b"\x00k", headers=headers, timestamp=then)
    client.produce(topic, b'{"number": 2}', b"", timestamp=then + 1)
    assert client.flush(60) == 0
    about = "_key binary, _timestamp timestamp, _headers array<struct<key: string, value: binary>>"
    frame = reader(spark.read, log, topic, f"number long, {about}").orderBy("number")
    rows = frame.withColumn("_timestamp", F.unix_millis("_timestamp")).collect()
    assert [tuple(row)[:3] for row in rows] == [(1, b"\x00k", then), (2, b"", then + 1)]
    assert [[tuple(each) for each in row["_headers"]] for row in rows] == [headers, []]


def test_without_a_schema_the_records_come_raw(spark, log):
    topic = create_topic(log)
    send(log, topic, [b"not json", None])
    rows = reader(spark.read, log, topic, None).orderBy("_offset").collect()
    assert [(row["_offset"], row["_value"], row["_key"]) for row in rows] == [
        (0, b"not json", None),
        (1, None, None),
    ]


def test_an_empty_topic_has_no_rows(spark, log):
    assert reader(spark.read, log, create_topic(log)).count() == 0


def test_many_tasks_share_a_long_range_and_lose_nothing(spark, log):
    topic = create_topic(log)
    send(log, topic, orders(5000), batch_num_messages=300)
    frame = reader(spark.read, log, topic, max_records_per_task=700, max_fetch_bytes=5000)
    assert frame.rdd.getNumPartitions() == 8
    assert frame.agg(F.count("*"), F.sum("number"), F.countDistinct("name")).first() == (5000, 12497500, 5000)


def test_a_stream_takes_no_more_than_its_limits_at_a_time(spark, log, tmp_path):
    topic = create_topic(log, partitions=2)
    send(log, topic, orders(600), partition=0)
    send(log, topic, orders(300, first=600), partition=1)
    frame = reader(spark.readStream, log, topic, max_records_per_batch=250)
    batches = stream_to(frame, tmp_path / "records")
    assert [len(batch) for batch in batches[:3]] == [251, 251, 251]  # 167 and 84, rounded up
    assert sorted(number for batch in batches for _, number in batch) == list(range(900))
    frame = reader(spark.readStream, log, topic, max_bytes_per_batch=20_000)
    batches = stream_to(frame, tmp_path / "bytes")
    smallest = len(json.dumps(orders(1)[0]))  # on the log a record has some bytes more
    assert 3 <= len(batches) <= 6
    assert max(map(len, batches)) * smallest < 20_000
    assert sorted(number for batch in batches for _, number in batch) == list(range(900))


def test_a_restarted_stream_goes_on_where_it_was(spark, log, tmp_path):
    topic = create_topic(log)
    send(log, topic, orders(10))
    frame = reader(spark.readStream, log, topic)
    assert len(stream_to(frame, tmp_path)[0]) == 10
    send(log, topic, orders(5, first=10))
    assert stream_to(frame, tmp_path) == [[(f"n{n}", n) for n in range(10, 15)]]
    assert stream_to(frame, tmp_path) == []


def test_a_partition_added_later_is_read_from_its_beginning(spark, log, tmp_path):
    topic = create_topic(log)
    send(log, topic, orders(2))
    frame = reader(spark.readStream, log, topic)
    stream_to(frame, tmp_path)
    add_partitions(log, topic, 2)
    send(log, topic, orders(3, first=2), partition=1)
    assert stream_to(frame, tmp_path) == [[(f"n{n}", n) for n in range(2, 5)]]


def test_a_stream_that_starts_at_the_latest_sees_only_what_comes_after(spark, log, tmp_path):
    topic = create_topic(log)
    send(log, topic, orders(3))
    frame = reader(spark.readStream, log, topic, start="latest")
    assert stream_to(frame, tmp_path) == []
    send(log, topic, orders(2, first=3))
    assert stream_to(frame, tmp_path) == [[("n3", 3), ("n4", 4)]]


def test_bad_values_become_rows_with_a_reason_and_their_neighbours_stay(spark, log):
    topic = create_topic(log)
    bad = {3: b"{", 50: b"", 51: b'{"number": "text"}', 99: b"\xff"}
    send(log, topic, [bad.get(number, value) for number, value in enumerate(orders(100))])
    frame = reader(spark.read, log, topic, f"{SCHEMA}, _offset long, _value binary, _corrupt string")
    rows = frame.orderBy("_offset").collect()
    assert {row["_offset"]: bytes(row["_value"]) for row in rows if row["_corrupt"] is not None} == bad
    good = [row for row in rows if row["_corrupt"] is None]
    assert [(row["name"], row["number"]) for row in good] == [
        (f"n{n}", n) for n in range(100) if n not in bad
    ]


def test_a_bad_value_without_a_column_for_it_stops_the_query_and_names_the_offset(spark, log):
    topic = create_topic(log)
    send(log, topic, [*orders(7), b"nope"])
    with pytest.raises(
        PySparkException, match=f"{topic}-0: the value at offset 7 is not JSON.*_corrupt string"
    ):
        reader(spark.read, log, topic).collect()


def test_a_tombstone_is_a_row_of_nulls_and_not_corrupt(spark, log):
    topic = create_topic(log)
    send(log, topic, [None])
    assert reader(spark.read, log, topic, f"{SCHEMA}, _corrupt string").first() == (None, None, None)


def test_a_checkpoint_of_a_topic_that_was_made_anew_is_refused(spark, log, tmp_path):
    topic = create_topic(log)
    send(log, topic, orders(3))
    frame = reader(spark.readStream, log, topic)
    stream_to(frame, tmp_path)
    delete_topic(log, topic)
    create_topic(log, name=topic)
    send(log, topic, orders(9))
    with pytest.raises(PySparkException, match="deleted and created again"):
        stream_to(frame, tmp_path)


def test_records_that_fell_off_the_log_before_they_were_read_stop_the_query(spark, log, tmp_path):
    topic = create_topic(log)
    send(log, topic, orders(10))
    frame = reader(spark.readStream, log, topic)
    stream_to(frame, tmp_path)
    send(log, topic, orders(20), batch_num_messages=5)
    delete_records(log, topic, 20)
    with pytest.raises(PySparkException, match=r"records from offset 10 were removed before they were read"):
        stream_to(frame, tmp_path)


@pytest.mark.parametrize(
    ("options", "schema", "reason"),
    [
        ({"strat": "latest"}, SCHEMA, "the source has no option 'strat'"),
        ({"start": "yesterday"}, SCHEMA, "start='yesterday' is neither earliest, latest, a time"),
        ({}, "_offset string", "column '_offset' is of type bigint, not string"),
        ({}, "tags map<int, string>", "column 'tags' is a map with keys of int32"),
    ],
)
def test_a_mistaken_option_or_schema_is_refused_before_anything_is_read(
    spark, our_log, options, schema, reason
):
    with pytest.raises(PySparkException, match=reason):
        reader(spark.read, our_log, "any", schema, **options).collect()
