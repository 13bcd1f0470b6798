"""Any changes, in any batches, with any of them repeated: the view is what a dict would hold."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples

from headrace.views import ChangeKind, ViewBatch, ViewSchema
from headrace.views.formats import dumps, from_json, to_json
from headrace.views.memory import MemoryStore
from headrace.views.parquet.store import ParquetFolder, ParquetStore
from headrace.views.sql.sqlite import SqliteStore
from headrace.views.topic.changelog_records import LedgerRecord, change_records, ledger_records
from headrace.views.topic.changelog_rows import ChangelogRows

SCHEMA = ViewSchema("v", ("a", "b"), pa.schema([("a", pa.string()), ("b", pa.float64()), ("n", pa.int64())]))
STRUCT = pa.struct(list(SCHEMA.columns))

keys = st.tuples(st.sampled_from([None, "", "x"]), st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")]))
changes = st.lists(st.tuples(keys, st.one_of(st.none(), st.integers(0, 9))), max_size=8)
batches = st.lists(st.tuples(changes, st.booleans()), max_size=8)


def table(content):
    rows = [{"a": a, "b": b, "n": n} for (a, b), n in content]
    after = [None if row["n"] is None else row for row in rows]
    kinds = [int(ChangeKind.RETRACTION if row["n"] is None else ChangeKind.UPDATE) for row in rows]
    return pa.table(
        {
            "before": pa.array(rows, STRUCT),
            "after": pa.array(after, STRUCT),
            "kind": pa.array(kinds, pa.int8()),
        }
    )


def model(content):
    """What a dict makes of the changes: keys by what they look like, zero without its sign."""
    held = {}
    for (a, b), n in content:
        key = repr((a, 0.0 if b == 0 else b))
        held.pop(key, None)
        if n is not None:
            held[key] = n
    return held


def shown(rows):
    return {repr((each["a"], each["b"])): each["n"] for each in rows.to_pylist()}


def check(store, given_batches):
    store.prepare(SCHEMA)
    store.begin("v", "q")
    everything = []
    for number, (content, repeated) in enumerate(given_batches):
        batch = ViewBatch("q", number, table(content), counters={"in": len(content)})
        assert store.apply("v", batch)
        everything += content
        if repeated:
            assert not store.apply("v", batch)
        rows = store.read("v")
        assert shown(rows) == model(everything) and rows.num_rows == len(model(everything))
    if given_batches:
        assert store.reflected("v").counters == {"in": len(everything)}


@given(batches)
def test_memory(given_batches):
    store = MemoryStore("property")
    store.drop("v")
    check(store, given_batches)


@given(batches)
def test_sqlite(tmp_path_factory, given_batches):
    store = SqliteStore(tmp_path_factory.mktemp("v") / "v.db")
    check(store, given_batches)
    store.close()


@settings(max_examples=examples(12))
@given(batches)
def test_parquet(tmp_path_factory, given_batches):
    check(ParquetStore(ParquetFolder(tmp_path_factory.mktemp("v")), grace_ms=0), given_batches)


@given(batches, st.booleans(), st.data())
def test_the_rows_of_a_changelog(given_batches, compacted, data):
    """The topic's records, dealt to partitions and read in pieces, make the same rows."""
    from headrace.views.ledger import Ledger

    partitions, ledger, logs, everything = 3, Ledger(schema=SCHEMA), [[], [], []], []
    ledger = ledger.begin("q", None, 0)
    records = list(ledger_records("t", LedgerRecord(0, partitions, ledger)))
    for number, (content, _) in enumerate(given_batches):
        batch = ViewBatch("q", number, table(content))
        ledger = ledger.accept(batch).ledger
        records += change_records("t", SCHEMA, batch, ledger, compacted=compacted)
        records += ledger_records("t", LedgerRecord(number + 1, partitions, ledger))
        everything += content
    for record in records:
        partition = record.partition if record.partition is not None else sum(record.key) % partitions
        logs[partition].append((record.key, record.value))
    changelog = ChangelogRows(partitions)
    while any(logs):
        partition = data.draw(st.sampled_from([index for index, left in enumerate(logs) if left]))
        size = data.draw(st.integers(1, len(logs[partition])))
        changelog.feed(partition, logs[partition][:size])
        del logs[partition][:size]
        changelog.settle()
        if changelog.ledger_record is not None:
            held = [
                each for content, _ in given_batches[: changelog.ledger_record.number] for each in content
            ]
            assert shown(changelog.rows()) == model(held), "whole batches only"
    assert changelog.ledger_record.number == len(given_batches)
    assert shown(changelog.rows()) == model(everything)


scalars = [
    (pa.float64(), st.floats()),
    (pa.float32(), st.floats(width=32)),
    (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (pa.string(), st.text()),
    (pa.binary(), st.binary()),
    (pa.decimal128(38, 6), st.decimals(-(10**31), 10**31, places=6)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.bool_(), st.booleans()),
]
typed = st.sampled_from(scalars).flatmap(
    lambda pair: st.tuples(st.just(pair[0]), st.lists(st.none() | pair[1]))
)


@given(typed, st.sampled_from(["plain", "list", "struct", "map"]))
def test_json_gives_back_what_it_was_given(values, shape):
    import orjson

    kind, content = values
    if shape == "list":
        kind, content = pa.list_(kind), [content, None, []]
    elif shape == "struct":
        kind, content = pa.struct([("x", kind)]), [{"x": each} for each in content]
    elif shape == "map":
        kind, content = pa.map_(pa.string(), kind), [[("k", each)] for each in content]
    array = pa.array(content, kind)
    again = from_json([orjson.loads(dumps(each)) for each in to_json(array)], kind)
    assert repr(again.to_pylist()) == repr(array.to_pylist())
