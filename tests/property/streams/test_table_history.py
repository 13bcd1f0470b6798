"""Versions of a table's rows, and the table as it was, against a model that keeps the whole log."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples
from tests.property.streams.joins.histories import parts

from headrace.app.query.sinks.graph_batch import weighted_changes
from headrace.errors import RequestError
from headrace.streams import NO_WATERMARK
from headrace.streams.operators import WEIGHT, TableHistory
from headrace.streams.operators.operator import stamp_fields
from headrace.views import AsOf, ViewBatch, ViewSchema, history_view, open_store, read_as_of

FIELDS = pa.schema([("k", pa.string()), ("n", pa.int64())])
VERSIONS = pa.schema([*FIELDS, ("_deleted", pa.bool_())])
SECOND = 1_000_000
KEEP_US = 6 * SECOND
OPERATOR = TableHistory(("k",), KEEP_US)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PARTITIONS = 2


@st.composite
def logs(draw):
    """Records (key, number, deleted, valid from) of each partition; times mostly rise."""
    found = {partition: [] for partition in range(PARTITIONS)}
    for at in range(draw(st.integers(1, 16))):
        valid_from = max(0, at * 2 + draw(st.integers(-5, 1))) * SECOND
        record = (draw(st.sampled_from("abc")), at, draw(st.integers(0, 3)) == 0, valid_from)
        found[draw(st.integers(0, PARTITIONS - 1))].append(record)
    return found


def stamped(log):
    """A partition's records with the watermark before each: the highest time so far."""
    highest, found = None, []
    for offset, record in enumerate(log):
        found.append((offset, record, highest))
        highest = max(record[3], -1 if highest is None else highest)
    return found


def rows(batch):
    columns = {
        "k": [record[0] for _, _, record, _ in batch],
        "n": [None if record[2] else record[1] for _, _, record, _ in batch],
        "_deleted": [record[2] for _, _, record, _ in batch],
        "_partition": [partition for partition, _, _, _ in batch],
        "_offset": [offset for _, offset, _, _ in batch],
        "_event_time": [record[3] for _, _, record, _ in batch],
        "_watermark": [watermark for _, _, _, watermark in batch],
        WEIGHT: [1] * len(batch),
    }
    return pa.table(columns, schema=pa.schema([*VERSIONS, *stamp_fields()]))


class Served:
    """A table and its history, as an application keeps them."""

    def __init__(self):
        self.store = open_store("memory://history")
        for name in ("t", history_view("t")):
            self.store.drop(name)
        columns = OPERATOR.result([VERSIONS])
        key = ("k", "_in_partition", "_from_offset")
        self.schema = ViewSchema(history_view("t"), key, columns, keep_changes=10)
        for schema in (self.schema, ViewSchema("t", ("k",), FIELDS, keep_changes=10)):
            self.store.prepare(schema)
            self.store.begin(schema.name, "q")
        self.state = OPERATOR.new_state([VERSIONS])
        self.deltas, self.batch_id = [], 0

    def take(self, batch, watermark_us, read_to):
        step = self.state.advance([rows(batch) if batch else None], [watermark_us])
        self.deltas.append(step.delta)
        changes = weighted_changes(self.schema, [] if step.changes is None else [step.changes])
        known = None if watermark_us == NO_WATERMARK else watermark_us
        self.store.apply(
            self.schema.name,
            ViewBatch("q", self.batch_id, changes, offsets={"topic": read_to}, watermark_us=known),
        )
        self.batch_id += 1

    def restart(self, how):
        blobs = {
            "go on": None,
            "snapshot": [self.state.snapshot()],
            "deltas": self.deltas,
            "parts": parts(OPERATOR, self.state),
        }[how]
        if blobs is not None:
            self.state = OPERATOR.new_state([VERSIONS])
            for blob in blobs:
                self.state.replay(blob)

    def at(self, as_of):
        found = read_as_of(self.store, "t", as_of, keep_us=KEEP_US).rows
        return {row["k"]: row["n"] for row in found.to_pylist()}


def there(newest):
    return {key: record[1] for key, (*_, record) in newest.items() if not record[2]}


def model_at_time(read, time_us):
    newest = {}
    for partition, offset, record, _ in read:
        place = (record[3], partition, offset, record)
        if record[3] <= time_us and place[:3] > newest.get(record[0], (-1,))[:3]:
            newest[record[0]] = place
    return there(newest)


def model_at_offsets(read, following):
    last = {}
    for partition, offset, record, _ in read:
        if offset < following[partition] and offset > last.get((record[0], partition), (-1,))[0]:
            last[record[0], partition] = (offset, record)
    newest = {}
    for (key, partition), (offset, record) in last.items():
        place = (record[3], partition, offset, record)
        if place[:3] > newest.get(key, (-1,))[:3]:
            newest[key] = place
    return there(newest)


@settings(max_examples=examples(12))
@given(log=logs(), data=st.data())
def test_a_table_is_read_as_it_was_at_any_time_and_position_of_its_history(log, data):
    check_history(log, data)


@pytest.mark.slow
@settings(max_examples=400)
@given(log=logs(), data=st.data())
def test_a_table_is_read_as_it_was_in_hundreds_of_histories(log, data):
    check_history(log, data)


def check_history(log, data):
    served, read = Served(), []
    left = {partition: stamped(records) for partition, records in log.items()}
    highest = dict.fromkeys(left, NO_WATERMARK)
    while any(left.values()):
        batch = []
        for partition, records in left.items():
            for offset, record, watermark in records[: (size := data.draw(st.integers(1, 5)))]:
                batch.append((partition, offset, record, watermark))
                highest[partition] = max(highest[partition], record[3])
            del records[:size]
        read += batch
        read_to = {each: sum(1 for place, *_ in read if place == each) for each in range(PARTITIONS)}
        known = [each for partition, each in highest.items() if log[partition]]
        served.take(batch, watermark_us := min(known), read_to)
        served.restart(data.draw(st.sampled_from(["go on", "snapshot", "deltas", "parts"])))
        horizon_us = watermark_us - KEEP_US
        for second in range(34):
            moment = AsOf(time=EPOCH + timedelta(seconds=second))
            if second * SECOND >= horizon_us:
                assert served.at(moment) == model_at_time(read, second * SECOND)
            else:
                with pytest.raises(RequestError, match="goes back to"):
                    served.at(moment)
        assert served.at(AsOf(offsets=read_to)) == model_at_offsets(read, read_to)
        for following in ({0: data.draw(st.integers(0, read_to[0]))}, {1: read_to[1] // 2}):
            try:
                found = served.at(AsOf(offsets=following))
            except RequestError as error:
                assert "before the history" in str(error)
            else:
                assert found == model_at_offsets(read, {**read_to, **following})


def test_versions_that_ended_before_the_history_leave_the_state():
    state = OPERATOR.new_state([VERSIONS])
    log = stamped([("a", at, False, at * SECOND) for at in range(100)])
    largest = 0
    for offset, record, watermark in log:
        state.advance([rows([(0, offset, record, watermark)])], [record[3]])
        largest = max(largest, state.row_count)
    assert largest <= KEEP_US // SECOND + 3
    gone = stamped([("a", 0, False, 0), ("a", 0, True, SECOND), ("b", 0, False, 50 * SECOND)])
    state = OPERATOR.new_state([VERSIONS])
    for offset, record, watermark in gone:
        state.advance([rows([(0, offset, record, watermark)])], [record[3]])
    assert state.row_count == 1  # a key that was deleted before the history leaves nothing
