"""Changes of a database's table, as capture writes them, against a model of the table itself."""

import json
import zlib

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples
from tests.property.streams.joins.histories import parts

from headrace.records import Places
from headrace.streams.decode.table_values import PLACEHOLDER, parse_table
from headrace.streams.operators import STAMPS, WEIGHT, Upserts, WholeRows
from headrace.streams.operators.operator import stamp_fields
from headrace.streams.spec import DELETED, UNCHANGED

FIELDS = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("text", pa.string()), ("more", pa.string())])
VERSIONS = pa.schema([*FIELDS, (DELETED, pa.bool_()), (UNCHANGED, pa.binary())])
PARTITIONS = 2
ids = st.integers(1, 4)
texts = st.sampled_from([None, "", "a", "long"])


class Database:
    """A table of a database, and the log that its changes are written to."""

    def __init__(self):
        self.rows = {}
        self.logs = {partition: [] for partition in range(PARTITIONS)}
        self.states = []  # after each record: the rows, as plain values

    def put(self, row, *, keeps, by_name):
        """Inserts or updates a row; `keeps` are the fields of an update that keep their value unwritten."""
        before = self.rows.get(row["id"])
        keeps = [name for name in keeps if before is not None]
        if before is not None:
            row = {**row, **{name: before[name] for name in keeps}}
        self.rows[row["id"]] = row
        told = {name: value for name, value in row.items() if name not in keeps}
        if by_name:
            more = {"unchanged": keeps}
        else:
            told, more = {**told, **dict.fromkeys(keeps, PLACEHOLDER)}, {}
        self._write(row["id"], {"op": "c" if before is None else "u", "after": told, **more}, row)

    def delete(self, number):
        before = self.rows.pop(number, None)
        if before is not None:
            self._write(number, {"op": "d", "before": {"id": number}}, None)
            self._write(number, None, None)

    def change_key(self, number, other):
        row = self.rows.get(number)
        if row is not None and other not in self.rows:
            self.delete(number)
            self.put({**row, "id": other}, keeps=(), by_name=False)

    def _write(self, number, value, version):
        partition = zlib.crc32(b"%d" % number) % PARTITIONS
        key = json.dumps({"id": number}).encode()
        log = self.logs[partition]
        log.append((key, None if value is None else json.dumps(value).encode(), version))


@st.composite
def databases(draw):
    database = Database()
    for _ in range(draw(st.integers(1, 15))):
        kind = draw(st.sampled_from(["put", "put", "put", "delete", "key"]))
        if kind == "put":
            row = {"id": draw(ids), "n": draw(st.integers(0, 9)), "text": draw(texts), "more": draw(texts)}
            keeps = draw(st.sets(st.sampled_from(["text", "more"])))
            database.put(row, keeps=sorted(keeps), by_name=draw(st.booleans()))
        elif kind == "delete":
            database.delete(draw(ids))
        else:
            database.change_key(draw(ids), draw(ids))
    return database


def versions(records):
    """Records (partition, offset, record) as the feed gives them."""
    keys, values = (
        Places.of(pa.array([record[at] for _, _, record in records], pa.binary())) for at in (0, 1)
    )
    found = parse_table(keys, values, FIELDS, ["id"], style="debezium")
    assert found.parsed.bad_count == 0, found.parsed.reasons
    stamps = {
        "_partition": [partition for partition, _, _ in records],
        "_offset": [offset for _, offset, _ in records],
        "_event_time": [offset for _, offset, _ in records],
        "_watermark": [None] * len(records),
        WEIGHT: [1] * len(records),
    }
    columns = dict(zip(FIELDS.names, found.parsed.columns, strict=True))
    columns |= {DELETED: pa.array(found.deleted), UNCHANGED: found.unchanged, **stamps}
    return pa.table(columns, schema=pa.schema([*VERSIONS, *stamp_fields()]))


def read(draw, logs):
    """Batches of the logs' records: each log in its order, otherwise in any."""
    left = {partition: list(enumerate(log)) for partition, log in logs.items()}
    batches = []
    while any(left.values()):
        batch = []
        size = draw(st.integers(1, 8))
        turn = draw(st.integers(0, PARTITIONS - 1))
        for partition in sorted(left, key=lambda each: each != turn):
            records = left[partition]
            taken = min(len(records), size - len(batch))
            batch += [(partition, offset, record) for offset, record in records[:taken]]
            del records[:taken]
        batches.append(batch)
    return batches


def restarted(draw, operator, state, deltas):
    how = draw(st.sampled_from(["go on", "snapshot", "deltas", "parts"]))
    if how == "go on":
        return state
    new = operator.new_state([VERSIONS])
    for blob in {"snapshot": [state.snapshot()], "deltas": deltas, "parts": parts(operator, state)}[how]:
        new.replay(blob)
    return new


@settings(deadline=None, max_examples=examples(30))
@given(database=databases(), data=st.data())
def test_a_table_has_the_rows_that_the_source_has(database, data):
    operator = Upserts(("id",))
    state, deltas, held, known = operator.new_state([VERSIONS]), [], {}, {}
    for batch in read(data.draw, database.logs):
        for _, _, (key, _, version) in batch:
            known[key] = version
        step = state.advance([versions(batch)], [0])
        deltas.append(step.delta)
        for row in [] if step.changes is None else step.changes.to_pylist():
            own = json.dumps({name: row[name] for name in FIELDS.names})
            held[own] = held.get(own, 0) + row[WEIGHT]
        there = [json.dumps({name: row[name] for name in FIELDS.names}) for row in known.values() if row]
        assert {own: count for own, count in held.items() if count} == dict.fromkeys(there, 1)
        state = restarted(data.draw, operator, state, deltas)
    assert sorted(row["id"] for row in known.values() if row) == sorted(database.rows)


@settings(deadline=None, max_examples=examples(30))
@given(database=databases(), data=st.data())
def test_every_version_is_whole_and_keeps_its_stamps(database, data):
    operator = WholeRows(("id",))
    state, deltas = operator.new_state([VERSIONS]), []
    for batch in read(data.draw, database.logs):
        step = state.advance([versions(batch)], [0])
        deltas.append(step.delta)
        expected = {
            (partition, offset): version if version is None else tuple(version[name] for name in FIELDS.names)
            for partition, offset, (_, _, version) in batch
        }
        found = {
            (row["_partition"], row["_offset"]): None
            if row[DELETED]
            else tuple(row[name] for name in FIELDS.names)
            for row in step.changes.to_pylist()
        }
        assert found == expected
        assert step.changes.column_names == [*FIELDS.names, DELETED, *STAMPS]
        state = restarted(data.draw, operator, state, deltas)
