"""What every store of views promises."""

import math
import random
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from view_stores import (
    COUNTS,
    MANY_TYPES,
    batch,
    changes_of,
    minute,
    new_name,
    put,
    remove,
    row,
    same_bits,
    typed_rows,
)

from headrace.errors import FencedError, RequestError
from headrace.testing.s3 import s3_server
from headrace.views import (
    ChangeKind,
    Condition,
    LimitedStore,
    Order,
    ViewBatch,
    ViewSchema,
    open_store,
    without_misfits,
)

pytestmark = pytest.mark.xdist_group("stores")  # one PostgreSQL serves them all

KINDS = [
    "memory",
    "sqlite",
    "postgresql",
    "parquet",
    "parquet by URL",
    pytest.param("parquet in S3", marks=pytest.mark.slow),
    "topic",
    pytest.param("topic, compacted, 3 partitions", marks=pytest.mark.slow),
    pytest.param("topic on Kafka", marks=[pytest.mark.kafka, pytest.mark.slow]),
]
# The others select rows as the one in memory does, by the same code.
SELECTING = ["memory", "sqlite", "postgresql"]
FOLLOWED = ("memory", "sqlite", "postgresql")  # those that keep changes for followers


def url_of(kind, request, tmp_path):
    match kind:
        case "memory":
            return f"memory://{new_name('contract')}"
        case "sqlite":
            return f"sqlite:///{tmp_path}/views.db"
        case "parquet":
            return f"parquet:///{tmp_path}/views"
        case "parquet by URL":
            return f"parquet+file://{tmp_path}/views"
        case "parquet in S3":
            return f"parquet+{request.getfixturevalue('bucket')}/{new_name('contract')}"
        case "topic":
            return topic_url(request, "our_log", "&partitions=2")
        case "topic, compacted, 3 partitions":
            return topic_url(request, "our_log", "&compacted=true&partitions=3")
        case "topic on Kafka":
            return topic_url(request, "kafka_log", "")
        case "postgresql":
            return request.getfixturevalue("postgres").url()


def topic_url(request, log, options):
    bootstrap = request.getfixturevalue(log).bootstrap_servers
    return f"topic://{new_name('contract')}.*?bootstrap={bootstrap}{options}"


@pytest.fixture
def bucket():
    with s3_server() as url:
        yield url


@pytest.fixture(params=KINDS)
def url(request, tmp_path):
    return url_of(request.param, request, tmp_path)


@pytest.fixture
def store(url):
    opened = open_store(url)
    yield opened
    opened.close()


@pytest.fixture
def counts(store):
    """A store with the view `counts`, owned by the query "q"."""
    store.prepare(COUNTS)
    store.begin("counts", "q")
    return store


def kind_of(url):
    return url.partition("://")[0]


def wait_for_batch(store, number, view="counts"):
    """Another store's batch: a transaction on a topic is decided a moment before its readers see it."""
    deadline = time.monotonic() + 60
    while store.snapshot(view).reflected.batch_id < number:
        assert time.monotonic() < deadline, f"batch {number} is not there after 60 s"


def rows(store, view="counts", **selection):
    return store.read(view, **selection).to_pylist()


# --- rows that do not fit -------------------------------------------------------------------------

TEXTS = ViewSchema(
    "texts",
    ("id", "part"),
    pa.schema(
        [
            ("id", pa.string()),
            ("part", pa.binary()),
            ("text", pa.string()),
            ("tags", pa.list_(pa.string())),
        ]
    ),
    keep_changes=100,
)


def text(id_, text, *, part=b"", tags=()):
    return {"id": id_, "part": part, "text": text, "tags": list(tags)}


def large_key(id_, size):
    """A row with a key of that many bytes, which no compression makes smaller."""
    return text(id_, "a key", part=random.Random(size).randbytes(size - len(id_)))


def texts(store):
    return {each["id"]: each["text"] for each in rows(store, "texts")}


def test_whatever_a_column_may_hold_is_kept_or_set_aside_with_the_reason(store):
    store.prepare(TEXTS)
    store.begin("texts", "q")

    def apply(number, *changes):
        whole = batch(number, *changes, schema=TEXTS)
        fitting, aside = without_misfits(store, TEXTS, whole.changes)
        store.apply("texts", replace(whole, changes=fitting))
        return {} if aside is None else {each["id"]: each["_reason"] for each in aside.to_pylist()}

    plain = [
        text("", ""),
        text(None, None, part=None),
        text("nested", "x", tags=["\0"]),
        large_key("k", 2_600),
    ]
    assert apply(0, *map(put, plain), put(text("shown", "before"))) == {}
    assert texts(store) == {each["id"]: each["text"] for each in plain} | {"shown": "before"}

    odd = [text("a\0b", "a key"), large_key("larger", 2_601), text("shown", "a \0 within")]
    aside = apply(1, *map(put, odd))
    kept = {each["id"]: each["text"] for each in (*plain, *odd) if each["id"] not in aside}
    assert texts(store) == kept, "no row is better than an outdated one"
    if isinstance(store, LimitedStore):
        assert aside == {
            "a\0b": "id: PostgreSQL's text cannot hold U+0000",
            "larger": "the key has more than 2,600 bytes, which PostgreSQL cannot index",
            "shown": "text: PostgreSQL's text cannot hold U+0000",
        }
    else:
        assert aside == {}

    assert apply(2, *map(remove, odd)) == {}, "a row that goes is not set aside"
    assert texts(store) == {each["id"]: each["text"] for each in plain}


# --- batches --------------------------------------------------------------------------------------


def test_a_new_view_is_empty_and_reflects_nothing(store):
    store.prepare(COUNTS)
    found = store.read("counts")
    assert found.num_rows == 0 and found.schema.equals(COUNTS.columns)
    reflected = store.reflected("counts")
    assert (reflected.query_id, reflected.batch_id, reflected.offsets) == (None, -1, {})
    assert store.views() == ["counts"] and store.schema("counts") == COUNTS


def test_rows_are_inserted_corrected_and_retracted(counts):
    a, b, c = row("a", 0, 1), row("b", 0, 2), row("c", 0, 3)
    assert counts.apply("counts", batch(0, put(a), put(b), put(c)))
    assert rows(counts) == [a, b, c]
    corrected = row("b", 0, 5, 7.25)
    assert counts.apply("counts", batch(1, put(corrected, before=b), remove(c)))
    assert rows(counts) == [a, corrected]


def test_a_repeated_batch_changes_nothing_and_says_so(counts):
    assert counts.apply("counts", batch(0, put(row("a", 0, 1)), counters={"on_time": 3}))
    assert counts.apply("counts", batch(1, put(row("b", 0, 1)), counters={"on_time": 2}))
    for number in (0, 1):
        assert not counts.apply("counts", batch(number, put(row("z", 9, 9)), counters={"on_time": 9}))
    assert [each["region"] for each in rows(counts)] == ["a", "b"]
    assert counts.reflected("counts").counters == {"on_time": 5}


def test_the_ledger_moves_with_every_batch_also_with_an_empty_one(counts):
    counters = {"on_time": 3, "corrected": 0, "dropped": 1}
    counts.apply(
        "counts",
        batch(0, put(row("a", 0, 1)), offsets={"t": {0: 5, 1: 7}}, watermark_us=100, counters=counters),
    )
    counts.apply("counts", batch(1, offsets={"t": {1: 9}, "u": {0: 1}}, watermark_us=90, counters=counters))
    reflected = counts.reflected("counts")
    assert (reflected.query_id, reflected.batch_id, reflected.watermark_us) == ("q", 1, 100)
    assert reflected.offsets == {"t": {0: 5, 1: 9}, "u": {0: 1}}
    assert reflected.counters == {"on_time": 6, "corrected": 0, "dropped": 2}
    assert counts.snapshot("counts").reflected == reflected


def test_the_ledger_adds_up_the_books_of_each_input_and_keeps_the_watermark_of_each_topic(counts):
    first = {"inputs": {"t": {"on_time": 2}, "u": {"dead": 1}}, "watermarks": {"t": 5}}
    counts.apply("counts", batch(0, put(row("a", 0, 1)), **first))
    counts.apply("counts", batch(1, inputs={"t": {"on_time": 1, "late": 1}}, watermarks={"t": 7, "u": 3}))
    reflected = counts.snapshot("counts").reflected
    assert reflected.inputs == {"t": {"on_time": 3, "late": 1}, "u": {"dead": 1}}
    assert reflected.watermarks == {"t": 7, "u": 3}


def test_changes_of_one_key_count_in_the_order_of_the_table(counts):
    first, second, third = row("a", 0, 1), row("a", 0, 2), row("a", 0, 3)
    counts.apply("counts", batch(0, put(first), put(second, before=first), remove(second), put(third)))
    assert rows(counts) == [third]
    counts.apply("counts", batch(1, put(first, before=third), remove(first)))
    assert rows(counts) == []


def test_removing_what_is_not_there_is_harmless(counts):
    counts.apply("counts", batch(0, put(row("a", 0, 1)), remove(row("x", 0, 1))))
    counts.apply("counts", batch(1, remove(row("y", 0, 1))))
    assert rows(counts) == [row("a", 0, 1)]


def test_a_missing_batch_is_refused(counts):
    counts.apply("counts", batch(0, put(row("a", 0, 1))))
    with pytest.raises(RequestError, match="expects batch 1 of query q but was given 2"):
        counts.apply("counts", batch(2, put(row("b", 0, 1))))
    assert rows(counts) == [row("a", 0, 1)]


def test_a_query_that_goes_on_elsewhere_does_not_begin_in_an_empty_store(store):
    store.prepare(COUNTS)
    store.begin("counts", "q")
    with pytest.raises(RequestError, match="expects batch 0"):
        store.apply("counts", batch(7, put(row("a", 0, 1))))
    store.begin("counts", "r", first_batch=7)
    assert store.apply("counts", batch(7, put(row("a", 0, 1)), query="r"))


def test_changes_of_another_view_are_refused_and_leave_nothing(counts):
    counts.apply("counts", batch(0, put(row("a", 0, 1))))
    with pytest.raises(RequestError):
        counts.apply("counts", ViewBatch("q", 1, pa.table({"x": [1]})))
    with pytest.raises(RequestError, match="no key column"):
        counts.apply("counts", ViewBatch("q", 1, changes_of(typed_rows(), MANY_TYPES)))
    assert counts.reflected("counts").batch_id == 0 and len(rows(counts)) == 1
    assert counts.apply("counts", batch(1, put(row("b", 0, 1))))


def test_a_view_that_is_not_there_is_named(store):
    store.prepare(COUNTS)
    for ask in (store.read, store.reflected, store.schema, store.last_sequence):
        with pytest.raises(RequestError, match=r"no view 'nosuch' here; the views are: counts"):
            ask("nosuch")
    with pytest.raises(RequestError, match="nosuch"):
        store.apply("nosuch", batch(0))


def test_a_store_is_the_same_when_it_is_opened_again(url, counts):
    counts.apply("counts", batch(0, put(row("a", 0, 1)), offsets={"t": {0: 5}}))
    again = open_store(url)
    again.prepare(COUNTS)
    assert again.begin("counts", "q").batch_id == 0
    assert again.snapshot("counts") == counts.snapshot("counts")
    assert again.schema("counts") == COUNTS
    assert not again.apply("counts", batch(0, put(row("z", 0, 1))))
    assert again.apply("counts", batch(1, put(row("b", 0, 1))))
    wait_for_batch(counts, 1)
    assert len(rows(counts)) == 2
    again.close()


# --- rebuilding -----------------------------------------------------------------------------------


def test_a_new_query_replaces_the_rows_with_its_first_batch_and_not_before(counts):
    counts.apply("counts", batch(0, put(row("a", 0, 1)), put(row("b", 0, 1)), counters={"on_time": 2}))
    assert counts.begin("counts", "new").batch_id == 0
    assert [each["region"] for each in rows(counts)] == ["a", "b"]
    counts.apply("counts", batch(0, put(row("b", 0, 9)), query="new", counters={"on_time": 1}))
    assert rows(counts) == [row("b", 0, 9)]
    reflected = counts.reflected("counts")
    assert (reflected.query_id, reflected.batch_id, reflected.counters) == ("new", 0, {"on_time": 1})


def test_an_older_query_is_fenced_once_a_newer_one_has_begun(counts):
    counts.apply("counts", batch(0, put(row("a", 0, 1))))
    counts.begin("counts", "new")
    with pytest.raises(FencedError, match="belongs to query new"):
        counts.apply("counts", batch(1, put(row("z", 0, 1))))
    counts.apply("counts", batch(0, put(row("b", 0, 1)), query="new"))
    with pytest.raises(FencedError, match="belongs to query new"):
        counts.apply("counts", batch(1, put(row("z", 0, 1))))
    assert [each["region"] for each in rows(counts)] == ["b"]


def test_a_rebuild_that_never_wrote_can_be_taken_back(counts):
    counts.apply("counts", batch(0, put(row("a", 0, 1))))
    counts.begin("counts", "new")
    counts.begin("counts", "q")
    assert counts.apply("counts", batch(1, put(row("b", 0, 1))))
    assert len(rows(counts)) == 2


def test_other_columns_are_refused_unless_the_view_is_rebuilt(counts):
    counts.apply("counts", batch(0, put(row("a", 0, 1))))
    other = ViewSchema("counts", ("region",), pa.schema([("region", pa.string()), ("n", pa.int32())]))
    with pytest.raises(RequestError, match=r"key was region, window_start and now is region.*[Rr]ebuild"):
        counts.prepare(other)
    counts.begin("counts", "new", schema=other)
    assert rows(counts) == [row("a", 0, 1)]
    first = {"region": "b", "n": 7}
    counts.apply("counts", batch(0, put(first), query="new", schema=other))
    assert rows(counts) == [first] and counts.schema("counts") == other
    counts.prepare(other)


def test_a_dropped_view_is_gone_and_can_be_made_anew(counts):
    counts.apply("counts", batch(0, put(row("a", 0, 1))))
    counts.drop("counts")
    counts.drop("counts")
    assert counts.views() == []
    counts.prepare(COUNTS)
    counts.begin("counts", "r")
    assert rows(counts) == []
    assert counts.apply("counts", batch(0, put(row("b", 0, 1)), query="r"))
    assert rows(counts) == [row("b", 0, 1)]


# --- values ---------------------------------------------------------------------------------------


def test_every_type_comes_back_exactly(store):
    store.prepare(MANY_TYPES)
    store.begin("types", "q")
    wanted = typed_rows()
    store.apply("types", ViewBatch("q", 0, changes_of(wanted, MANY_TYPES)))
    assert same_bits(store.read("types"), wanted)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), [None, "", "A", "a", "b\u00e9", "z", "\U0001f30a"]),
        (pa.int64(), [None, -(1 << 63), -1, 0, (1 << 63) - 1]),
        (pa.bool_(), [None, False, True]),
        (pa.float64(), [None, -math.inf, -1.5, 0.0, 2.0, 10.0, math.inf, math.nan]),
        (pa.decimal128(10, 2), [None, "-10.00", "-9.50", "0.00", "9.50", "10.00"]),
        (pa.timestamp("us", "UTC"), [None, datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]),
        (pa.date32(), [None, datetime(1, 1, 1).date(), datetime(9999, 12, 31).date()]),
        (pa.binary(), [None, b"", b"\x00", b"\x00\x00", b"\xff"]),
    ],
    ids=str,
)
def test_keys_of_every_type_are_told_apart_ordered_and_found_again(url, store, kind, values):
    """Null keys and NaN too: each is one row, however often it is written."""
    if kind_of(url) == "topic" and not pa.types.is_float64(kind):
        pytest.skip("one type is enough where all are JSON")
    schema = ViewSchema("keyed", ("k",), pa.schema([("k", kind), ("n", pa.int64())]))
    store.prepare(schema)
    store.begin("keyed", "q")
    keys = pa.array(values).cast(kind) if pa.types.is_decimal(kind) else pa.array(values, kind)
    for number in range(3):
        shuffled = keys.take(pa.array(list(reversed(range(len(keys))))))
        content = pa.table({"k": shuffled, "n": pa.array([number] * len(keys), pa.int64())})
        store.apply("keyed", ViewBatch("q", number, changes_of(content, schema)))
    wanted = pa.table({"k": keys, "n": pa.array([2] * len(keys), pa.int64())})
    assert same_bits(store.read("keyed"), wanted)
    half = wanted.slice(0, 2)
    removal = changes_of(half, schema).rename_columns(["k", "after", "before", "kind"])
    removal = removal.set_column(3, "kind", pa.array([int(ChangeKind.RETRACTION)] * 2, pa.int8()))
    store.apply("keyed", ViewBatch("q", 3, removal))
    assert same_bits(store.read("keyed"), wanted.slice(2))


def test_zero_has_one_key_whatever_its_sign(store):
    schema = ViewSchema("keyed", ("k",), pa.schema([("k", pa.float64()), ("n", pa.int64())]))
    store.prepare(schema)
    store.begin("keyed", "q")
    content = pa.table({"k": [0.0, -0.0], "n": [1, 2]})
    store.apply("keyed", ViewBatch("q", 0, changes_of(content, schema)))
    assert repr(store.read("keyed").to_pylist()) == repr([{"k": 0.0, "n": 2}])


HOSTILE = [
    'quo"te',
    "semi; DROP TABLE headrace_ledger; --",
    "select",
    "back\\slash",
    "per%cent %s %(x)s",
    "brace{}",
    "new\nline",
    "ümläut",
    "a'b",
    "dot.ted",
    "?1 :x $1",
    "COLLATE",
    "rowid",
    "excluded",
    "before",
    "kind",
]


def test_hostile_column_names_are_only_names(store):
    schema = ViewSchema("hostile", (HOSTILE[0], HOSTILE[1]), pa.schema([(n, pa.string()) for n in HOSTILE]))
    store.prepare(schema)
    store.begin("hostile", "q")
    content = pa.table({name: [f"1 {name}", f"2 {name}"] for name in HOSTILE}, schema=schema.columns)
    struct = pa.StructArray.from_arrays(
        [c.combine_chunks() for c in content.columns], fields=list(content.schema)
    )
    kinds = pa.array([0, 0], pa.int8())
    changes = pa.table({"before": struct, "after": struct, "kind": kinds})
    for number in range(2):
        store.apply("hostile", ViewBatch("q", number, changes))
    assert store.read("hostile").equals(content)
    for name in HOSTILE:
        found = store.read(
            "hostile", where=[Condition(name, "=", f"2 {name}")], order=[Order(name, descending=True)]
        )
        assert found.equals(content.slice(1))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        ".hidden",
        "a/b",
        "a\\b",
        'a"b',
        "a;b",
        "a\0b",
        "ä",
        "x" * 49,
        "headrace_ledger",
        "sqlite_x",
        "a b",
    ],
)
def test_names_of_views_are_plain(name):
    with pytest.raises(RequestError, match="cannot be a view's name"):
        ViewSchema(name, ("k",), pa.schema([("k", pa.string())]))


@pytest.mark.parametrize("url", SELECTING, indirect=True)
@pytest.mark.parametrize("name", ["select", "a.b-c_d", "Orders", "1st", "table", "x" * 48])
def test_a_name_that_is_allowed_works(store, name):
    schema = ViewSchema(name, ("k",), pa.schema([("k", pa.string())]))
    store.prepare(schema)
    store.begin(name, "q")
    store.apply(name, batch(0, put({"k": "x"}), schema=schema))
    store.apply(name, batch(1, put({"k": "x"}), put({"k": "y"}), schema=schema))
    assert rows(store, name) == [{"k": "x"}, {"k": "y"}]


# --- reading --------------------------------------------------------------------------------------


@pytest.fixture
def filled(request, tmp_path):
    content = [
        row("north", 0, 10, 1.5),
        row("north", 1, None, math.nan),
        row("north-east", 0, 3, -2.0),
        row("south", 0, 7, None),
        row("south", 2, 7, 8.0),
        row(None, 1, 1, 0.0),
        row("n_rth%", 0, 2, 3.0),
    ]
    store = open_store(url_of(request.param, request, tmp_path))
    store.prepare(COUNTS)
    store.begin("counts", "q")
    store.apply("counts", batch(0, *(put(each) for each in content)))
    yield store
    store.close()


ON_EACH = pytest.mark.parametrize("filled", SELECTING, indirect=True)


def where(*conditions):
    return {"where": [Condition(*each) for each in conditions]}


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ([("region", "=", "south")], [("south", 0), ("south", 2)]),
        ([("region", "!=", "south")], [("n_rth%", 0), ("north", 0), ("north", 1), ("north-east", 0)]),
        ([("region", "prefix", "north")], [("north", 0), ("north", 1), ("north-east", 0)]),
        ([("region", "prefix", "n_rth%")], [("n_rth%", 0)]),
        (
            [("region", "prefix", "")],
            [("n_rth%", 0), ("north", 0), ("north", 1), ("north-east", 0), ("south", 0), ("south", 2)],
        ),
        ([("region", "prefix", "north"), ("window_start", "=", minute(1))], [("north", 1)]),
        ([("region", "is_null")], [(None, 1)]),
        ([("region", "in", ["south", "' OR 1=1 --"])], [("south", 0), ("south", 2)]),
        ([("region", "in", [])], []),
        ([("orders", ">", 7)], [("north", 0)]),
        ([("orders", ">=", "7")], [("north", 0), ("south", 0), ("south", 2)]),
        ([("orders", "<", 3)], [(None, 1), ("n_rth%", 0)]),
        ([("orders", "not_null"), ("orders", "<=", 3)], [(None, 1), ("n_rth%", 0), ("north-east", 0)]),
        ([("revenue", ">", 2.0)], [("n_rth%", 0), ("north", 1), ("south", 2)]),
        ([("revenue", "=", math.nan)], [("north", 1)]),
        ([("revenue", "<", math.nan), ("orders", "<", 7)], [(None, 1), ("n_rth%", 0), ("north-east", 0)]),
        ([("revenue", "!=", 8.0)], [(None, 1), ("n_rth%", 0), ("north", 0), ("north", 1), ("north-east", 0)]),
        ([("revenue", "in", [math.nan, 8.0])], [("north", 1), ("south", 2)]),
        ([("window_start", ">", minute(0))], [(None, 1), ("north", 1), ("south", 2)]),
        ([("window_start", ">=", minute(2).isoformat())], [("south", 2)]),
    ],
    ids=str,
)  # fmt: skip
@ON_EACH
def test_conditions_mean_the_same_everywhere(filled, conditions, found):
    content = rows(filled, **where(*conditions))
    assert [(each["region"], (each["window_start"] - minute(0)).seconds // 60) for each in content] == found


@ON_EACH
def test_order_is_total_and_pages_do_not_overlap(filled):
    everything = filled.read("counts", order=[Order("revenue", descending=True)])
    assert [str(each) for each in everything["revenue"].to_pylist()] == [
        "nan", "8.0", "3.0", "1.5", "0.0", "-2.0", "None",
    ]  # fmt: skip
    ascending = filled.read("counts", order=[Order("orders"), Order("region", descending=True)])
    assert ascending["orders"].to_pylist() == [None, 1, 2, 3, 7, 7, 10]
    assert rows(filled, order=[Order("orders")])[4]["window_start"] == minute(0), "equal ones come by key"
    pages = [rows(filled, order=[Order("orders")], limit=3, offset=start) for start in range(0, 9, 3)]
    assert [len(each) for each in pages] == [3, 3, 1]
    assert repr([each for page in pages for each in page]) == repr(rows(filled, order=[Order("orders")]))
    assert rows(filled, limit=0) == [] and len(rows(filled, offset=5)) == 2


@pytest.mark.parametrize("url", SELECTING, indirect=True)
def test_decimals_compare_as_numbers(store):
    import decimal

    schema = ViewSchema("prices", ("id",), pa.schema([("id", pa.int32()), ("p", pa.decimal128(20, 2))]))
    store.prepare(schema)
    store.begin("prices", "q")
    values = [decimal.Decimal(each) for each in ("9.00", "10.00", "-10.00", "-9.00", "10.01")]
    content = pa.table({"id": range(5), "p": values}, schema=schema.columns)
    store.apply("prices", ViewBatch("q", 0, changes_of(content, schema)))
    ids = lambda **selection: store.read("prices", **selection)["id"].to_pylist()  # noqa: E731
    assert ids(order=[Order("p")]) == [2, 3, 0, 1, 4]
    assert ids(where=[Condition("p", ">", "9.999")]) == [1, 4]
    assert ids(where=[Condition("p", "=", decimal.Decimal("10"))]) == [1]
    assert ids(where=[Condition("p", "in", ["-9", 10])]) == [1, 3]


@pytest.mark.parametrize(
    ("condition", "cause"),
    [
        (("nosuch", "=", 1), "no column 'nosuch'; it has region, "),
        (('region" = region --', "=", "x"), "no column"),
        (("region", "like", "x"), "not an operator"),
        (("region", "OR 1=1", "x"), "not an operator"),
        (("region", "=", 5), "not a value of type string"),
        (("orders", "=", "1; DROP TABLE counts"), "not a value of type int64"),
        (("orders", "=", 1 << 63), "not a value of type int64"),
        (("orders", "=", 1.5), "not a whole number"),
        (("orders", "=", True), "not a value of type int64"),
        (("orders", "=", None), "use is_null"),
        (("orders", "prefix", "1"), "text only"),
        (("window_start", "=", "yesterday"), "not a value of type timestamp"),
        (("region", "in", "abc"), "a list"),
        (("region", "in", ["x"] * 1001), "at most 1000"),
    ],
    ids=str,
)
@ON_EACH
def test_a_condition_that_makes_no_sense_is_refused(filled, condition, cause):
    with pytest.raises(RequestError, match=cause):
        filled.read("counts", where=[Condition(*condition)])


@ON_EACH
def test_orders_and_pages_that_make_no_sense_are_refused(filled):
    with pytest.raises(RequestError, match="no column"):
        filled.read("counts", order=[Order("orders; --")])
    with pytest.raises(RequestError, match="0 or more"):
        filled.read("counts", limit=-1)
    with pytest.raises(RequestError, match="0 or more"):
        filled.read("counts", offset=-1)


# --- followers ------------------------------------------------------------------------------------


def following(url):
    if kind_of(url) not in FOLLOWED:
        pytest.skip("keeps no changes for followers")


def test_followers_get_each_change_once_in_order(url, counts):
    following(url)
    a, b = row("a", 0, 1), row("a", 0, 2)
    counts.apply("counts", batch(0, put(a)))
    counts.apply("counts", batch(1, put(b, before=a), remove(row("x", 0, 1))))
    first, second, third = counts.changes("counts")
    assert [each.sequence for each in (first, second, third)] == [1, 2, 3]
    assert [(each.batch_id, each.kind) for each in (first, second, third)] == [(0, 0), (1, 2), (1, 3)]
    assert first.before is None and first.after["orders"] == 1
    assert second.before["orders"] == 1 and second.after["orders"] == 2
    assert third.after is None and third.before["region"] == "x"
    start = minute(0).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    assert second.key == {"region": "a", "window_start": start}
    assert counts.changes("counts", since=1, limit=1) == [second]
    assert counts.changes("counts", since=3) == [] and counts.last_sequence("counts") == 3
    with pytest.raises(RequestError, match="not all kept"):
        counts.changes("counts", since=4)


def test_followers_that_fall_behind_or_meet_a_rebuild_are_told(url, store):
    following(url)
    store.prepare(ViewSchema("counts", COUNTS.key, COUNTS.columns, keep_changes=3))
    store.begin("counts", "q")
    store.apply("counts", batch(0, *(put(row("a", number, 1)) for number in range(5))))
    with pytest.raises(RequestError, match=r"there are 3 to 5"):
        store.changes("counts", since=1)
    assert [each.sequence for each in store.changes("counts", since=2)] == [3, 4, 5]
    store.apply("counts", batch(1, put(row("b", 0, 1))))
    assert [each.sequence for each in store.changes("counts", since=3)] == [4, 5, 6]
    store.begin("counts", "new")
    store.apply("counts", batch(0, put(row("c", 0, 1)), query="new"))
    with pytest.raises(RequestError, match="not all kept"):
        store.changes("counts", since=6)
    assert [
        each.after["region"] for each in store.changes("counts", since=store.last_sequence("counts") - 1)
    ] == ["c"]


# --- other processes ------------------------------------------------------------------------------

WRITER = """
    import sys
    sys.path[:0] = {path!r}
    from view_stores import COUNTS, batch, put, row
    from headrace.views import open_store
    store = open_store({url!r})
    for number in range(1, {batches} + 1):
        store.apply("counts", batch(number, *(put(row(f"r{{i}}", 0, number)) for i in range(40))))
    store.close()
"""


def test_readers_elsewhere_see_whole_batches_only(url, counts):
    if kind_of(url) == "memory":
        pytest.skip("is of one process")
    counts.apply("counts", batch(0, *(put(row(f"r{i}", 0, 0)) for i in range(40))))
    program = textwrap.dedent(WRITER.format(path=sys.path, url=url, batches=12))
    writer = subprocess.Popen([sys.executable, "-c", program])
    try:
        seen, moments = set(), 0
        while writer.poll() is None or not moments:
            found = counts.snapshot("counts")
            numbers = set(found.rows["orders"].to_pylist())
            assert found.rows.num_rows == 40 and numbers == {found.reflected.batch_id}
            seen |= numbers
            moments += 1
    finally:
        assert writer.wait(60) == 0
    wait_for_batch(counts, 12)
    assert counts.reflected("counts").batch_id == 12
    assert set(counts.read("counts")["orders"].to_pylist()) == {12}
