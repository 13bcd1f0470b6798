"""The feed as a Spark source with a trivial packer: batches, restarts, heartbeats, errors."""

import json
import time

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from topics import create_topic, delete_records, send

from headrace.streams.feed.feed import feed_source
from headrace.streams.feed.options import FeedOptions
from headrace.streams.feed.positions import Heartbeat
from headrace.streams.spec import StreamSpec

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

NOW_MS = 1_767_225_600_000


def json_packer():
    """A packer that gives every row, and then the mark, as a line of JSON.

    Made inside a function so that Spark ships it by value: workers cannot import this file.
    """

    class JsonPacker:
        schema = "line string"

        def pack(self, stamped):
            keep = ["number", "_partition", "_offset", "_event_time", "_watermark"]
            rows = stamped.rows.select(keep).to_pylist()
            yield pa.RecordBatch.from_pydict({"line": [json.dumps(row) for row in rows]})

        def finish(self, mark):
            yield pa.RecordBatch.from_pydict({"line": [json.dumps({"mark": mark.to_json()})]})

    return JsonPacker


def events(*seconds):
    return [{"at": NOW_MS + second * 1000, "number": second} for second in seconds]


def load(spark, log, topic, **changes):
    spec = {"schema": "at long, number long", "event_time": "at", "max_ahead_us": 10**15, **changes}
    options = {name: spec.pop(name) for name in ("max_records_per_batch", "heartbeat") if name in spec}
    name, packer = f"feed_{topic}".replace("-", "_"), json_packer()
    spark.dataSource.register(
        feed_source(
            name,
            [StreamSpec(topic=topic, **spec)],
            FeedOptions(connection=log, **options),
            lambda _: packer(),
        )
    )
    return spark.readStream.format(name).load()


def started(frame, checkpoint, **trigger):
    """A query and the list into which it puts the lines of each batch."""
    batches = []

    def keep(batch, batch_id):
        batches.append([json.loads(row["line"]) for row in batch.collect()])

    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start(), batches


def all_available(frame, checkpoint):
    query, batches = started(frame, checkpoint, availableNow=True)
    query.awaitTermination(120)
    return [batch for batch in batches if batch]


def test_batches_of_rows_end_with_a_mark_for_each_partition(spark, log, tmp_path):
    topic = create_topic(log, partitions=2)
    send(log, topic, events(1, 2, 3, 4), partition=0)
    send(log, topic, events(5, 6), partition=1)
    frame = load(spark, log, topic, max_records_per_batch=3, group=f"g-{topic}")
    batches = all_available(frame, tmp_path)
    lines = [line for batch in batches for line in batch]
    assert [len([line for line in batch if "mark" in line]) for batch in batches] == [2, 2]
    rows = sorted((line["_partition"], line["number"]) for line in lines if "mark" not in line)
    assert rows == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 5), (1, 6)]
    send(log, topic, events(9), partition=1)
    [[row, mark]] = all_available(frame, tmp_path)
    assert (row["number"], row["_watermark"]) == (9, (NOW_MS + 6000) * 1000)
    assert mark["mark"]["times"] == {"0": [(NOW_MS + 4000) * 1000, None], "1": [(NOW_MS + 6000) * 1000, None]}


def test_a_silent_input_gives_empty_batches_that_stop_by_themselves(spark, our_log, tmp_path):
    topic = create_topic(our_log)
    send(our_log, topic, events(1))
    beat = Heartbeat(interval_us=20_000, until_us=100_000)
    frame = load(spark, our_log, topic, idle_after_us=10_000, heartbeat=beat)
    query, batches = started(frame, tmp_path, processingTime="0 seconds")
    try:
        silences = []
        deadline = time.monotonic() + 60
        while (not silences or silences[-1] <= beat.until_us) and time.monotonic() < deadline:
            query.processAllAvailable()
            silences = [batch[-1]["mark"]["silence_us"] for batch in list(batches) if batch]
        assert silences[0] == 0
        assert silences == sorted(silences)
        assert silences[-1] > beat.until_us >= silences[-2]
        query.processAllAvailable()
        assert len([batch for batch in batches if batch]) == len(silences)
    finally:
        query.stop()


def test_what_retention_took_stops_the_query_with_its_offsets(spark, our_log, tmp_path):
    topic = create_topic(our_log)
    send(our_log, topic, events(1, 2))
    frame = load(spark, our_log, topic)
    all_available(frame, tmp_path)
    send(our_log, topic, events(*range(3, 9)), batch_num_messages=1)
    delete_records(our_log, topic, 5)
    with pytest.raises(PySparkException, match="records from offset 2 were removed"):
        all_available(frame, tmp_path)
