"""A bit that flips anywhere in an SQLite file of views.

`SameOrRefused`: what is read then is exactly what was written, or the read is refused, and the message
names the file, the table where it is one of ours, and what to do.
"""

import itertools
import os
import random
import sqlite3
from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.errors import ConfigError, CorruptionError, RequestError
from headrace.views import ChangeKind, Condition, Order, ViewBatch, ViewSchema
from headrace.views.sql.sqlite import SqliteStore

STAMP = pa.timestamp("us", "UTC")
MINUTES = ViewSchema(
    "minutes",
    ("user", "at"),
    pa.schema(
        [
            ("user", pa.string()),
            ("at", STAMP),
            ("events", pa.int64()),
            ("total", pa.float64()),
            ("paid", pa.decimal128(9, 2)),
            ("last", pa.bool_()),
            ("tags", pa.list_(pa.string())),
        ]
    ),
    keep_changes=40,
)
NULLS = ViewSchema("nulls", ("region",), pa.schema([("region", pa.string()), ("n", pa.int32())]))
REMEDIES = ("restore it from a copy, or remove it", "give the path of an SQLite file")


def minute(number, total):
    return {
        "user": f"user-{number % 40:02}",
        "at": 1_700_000_000_000_000 + number // 40 * 60_000_000,
        "events": number,
        "total": float("nan") if number == 7 else total,
        "paid": None if number % 5 == 0 else Decimal(f"{number}.50"),
        "last": number % 2 == 0,
        "tags": ["a", f"täg {number}"],
    }


def batch(number, schema, rows, kind=ChangeKind.CLOSE):
    after = pa.array(rows, pa.struct(list(schema.columns)))
    kinds = pa.array([int(kind)] * len(rows), pa.int8())
    changes = pa.table({"before": after, "after": after, "kind": kinds})
    return ViewBatch("q", number, changes, {"orders": {0: 17 + number}}, 5, {"on_time": len(rows)})


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A file with two views that were inserted into, corrected and removed from, closed."""
    path = tmp_path_factory.mktemp("flips") / "views.db"
    store = SqliteStore(path)
    for schema in (MINUTES, NULLS):
        store.prepare(schema)
        store.begin(schema.name, "q")
    store.apply("minutes", batch(0, MINUTES, [minute(number, 0.5) for number in range(400)]))
    store.apply("minutes", batch(1, MINUTES, [minute(number, 1.5) for number in range(0, 400, 3)]))
    gone = [minute(number, 0.5) for number in range(1, 400, 20)]
    store.apply("minutes", batch(2, MINUTES, gone, ChangeKind.RETRACTION))
    regions = [{"region": name, "n": n} for n, name in enumerate([None, "north", "south"])]
    store.apply("nulls", batch(0, NULLS, regions))
    store.apply("nulls", batch(1, NULLS, regions[:1]))
    store.close()
    return path


@pytest.fixture
def copy(written, tmp_path):
    """The same file, to be damaged."""
    path = tmp_path / "views.db"
    path.write_bytes(written.read_bytes())
    return path


def whole(store, view):
    snapshot = store.snapshot(view)
    return repr(snapshot.rows.to_pylist()), snapshot.reflected


def part(store, view, **selection):
    return repr(store.read(view, **selection).to_pylist())


READS = {
    "views": lambda store: store.views(),
    "a view": lambda store: whole(store, "minutes"),
    "a view with nulls": lambda store: whole(store, "nulls"),
    "rows of a key": lambda store: part(store, "minutes", where=[Condition("user", "=", "user-07")]),
    "rows by a value": lambda store: part(store, "minutes", where=[Condition("total", ">", 1.0)]),
    "a page": lambda store: part(store, "minutes", order=[Order("events", descending=True)], limit=10),
    "a null": lambda store: part(store, "nulls", where=[Condition("region", "is_null")]),
    "changes": lambda store: store.changes("minutes", 520, 100),
}


def answers(path):
    """What each read gives, or the error that it raises."""
    days = itertools.count()  # so many that each read of a part compares the whole once more
    try:
        store = SqliteStore(path, now_s=lambda: next(days) * 90_000.0)
    except ConfigError as refused:
        return dict.fromkeys(READS, refused)
    found = {}
    for name, read in READS.items():
        try:
            found[name] = read(store)
        except (CorruptionError, RequestError) as refused:
            found[name] = refused
    store.close()
    return found


def check(path, expected):
    """Compares what is read with what was written; how many reads were refused."""
    refused = 0
    for name, answer in answers(path).items():
        if name == "changes" and isinstance(answer, RequestError):
            assert "read the view again" in str(answer)
            refused += 1
        elif isinstance(answer, Exception):
            assert str(path) in str(answer), f"{name}: {answer} does not name the file"
            assert any(each in str(answer) for each in REMEDIES), f"{name}: {answer} says nothing to do"
            refused += 1
        else:
            assert answer == expected[name], f"{name} changed, and nothing was said"
    return refused


def flip_each(path, places):
    """Flips bits one by one; how many changed nothing, and how many were refused by some read."""
    expected, data = answers(path), path.read_bytes()
    assert not any(isinstance(answer, Exception) for answer in expected.values())
    outcomes = {"same": 0, "refused": 0}
    for position, bit in places:
        flipped = bytearray(data)
        flipped[position] ^= 1 << bit
        for each in path.parent.glob(f"{path.name}-*"):  # SQLite's own, of the last one
            each.unlink()
        path.write_bytes(flipped)
        try:
            outcomes["refused" if check(path, expected) else "same"] += 1
        except BaseException as error:
            error.add_note(f"bit {bit} of byte {position}: {data[max(position - 20, 0) : position + 20]!r}")
            raise
    return outcomes


PAGE = 8192


def drawn(seed, size, count):
    """A third in the headers of pages and the pointers behind them, a third in the first page."""
    chance = random.Random(seed)
    for number in range(count):
        start = chance.randrange(size // PAGE) * PAGE
        position = (start + chance.randrange(120), chance.randrange(PAGE), chance.randrange(size))[number % 3]
        yield position, chance.randrange(8)


def test_a_flipped_bit_changes_no_row_that_is_read_or_is_refused_by_name(copy):
    outcomes = flip_each(copy, drawn(1, copy.stat().st_size, 60))
    assert outcomes["refused"] >= 10


@pytest.mark.slow
def test_flipped_bits_all_over_the_file_change_no_row_that_is_read_or_are_refused_by_name(copy):
    seed = int(os.environ.get("HEADRACE_SEED") or random.randrange(1 << 32))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    outcomes = flip_each(
        copy, ((at, chance.randrange(8)) for at in range(chance.randrange(9), copy.stat().st_size, 9))
    )
    assert outcomes["refused"] > 1_000


def refusal(path, read="a view"):
    answer = answers(path)[read]
    assert isinstance(answer, CorruptionError)
    assert str(path) in str(answer)
    assert "table 'minutes' is damaged" in str(answer)
    assert REMEDIES[0] in str(answer)
    return str(answer)


def execute(path, *statements):
    with sqlite3.connect(path) as plain:
        for each in statements:
            plain.execute(each)
    plain.close()


@pytest.mark.parametrize("read", ["a view", "rows of a key", "rows by a value", "a page"])
def test_a_row_that_was_changed_removed_or_is_an_older_one_is_refused_by_every_read(copy, read):
    untouched = copy.read_bytes()
    execute(copy, "UPDATE minutes SET total = 2.5 WHERE events = 50")
    assert "rows are not what was written" in refusal(copy, read)
    copy.write_bytes(untouched)
    execute(copy, "DELETE FROM minutes WHERE events = 50")
    assert "it has 379 rows, and 380 were written" in refusal(copy, read)
    copy.write_bytes(untouched)
    with sqlite3.connect(copy) as plain:
        older = plain.execute("SELECT * FROM minutes WHERE events = 3").fetchone()
    plain.close()
    store = SqliteStore(copy)
    store.apply("minutes", batch(3, MINUTES, [minute(3, 9.0)]))
    store.close()
    with sqlite3.connect(copy) as plain:
        plain.execute("DELETE FROM minutes WHERE events = 3")
        plain.execute(f"INSERT INTO minutes VALUES ({', '.join('?' * len(older))})", older)
    plain.close()
    assert "not the last that were written" in refusal(copy, read)


def test_a_part_of_a_view_is_read_once_the_whole_was_compared_within_a_day(copy):
    now_s = 0.0
    store = SqliteStore(copy, now_s=lambda: now_s)
    before = part(store, "minutes", where=[Condition("user", "=", "user-10")])
    execute(copy, "DELETE FROM minutes WHERE user = 'user-10' AND events = 50")
    now_s = 23 * 3600.0
    assert part(store, "minutes", where=[Condition("user", "=", "user-10")]) != before
    now_s = 25 * 3600.0
    with pytest.raises(CorruptionError, match="379 rows"):
        part(store, "minutes", where=[Condition("user", "=", "user-10")])
    store.close()


def made_by_an_earlier_version(path):
    """Without checksums of rows and changes, and without a tally in the ledgers."""
    store = SqliteStore(path)
    ledgers = {view: store._ledger(view).dumps() for view in store.views()}
    store.close()
    execute(
        path, *(f"ALTER TABLE {table} DROP COLUMN headrace_check" for table in (*ledgers, "headrace_changes"))
    )
    with sqlite3.connect(path) as plain:
        for view, ledger in ledgers.items():
            plain.execute("UPDATE headrace_ledger SET ledger = ? WHERE view = ?", (ledger, view))
    plain.close()


def test_views_of_an_earlier_version_are_read_and_get_checksums_with_the_next_batch(copy):
    expected = answers(copy)
    made_by_an_earlier_version(copy)
    assert answers(copy) == expected
    execute(copy, "UPDATE minutes SET total = 2.5 WHERE events = 50")
    assert not isinstance(answers(copy)["a view"], Exception), "rows without checksums are taken as they are"
    store = SqliteStore(copy)
    store.apply("minutes", batch(3, MINUTES, [minute(50, 1.5)]))
    store.apply("nulls", batch(2, NULLS, []))
    rows = store.read("minutes").to_pylist()
    store.close()
    assert len(rows) == 380
    assert repr(minute(50, 1.5)["total"]) in {repr(row["total"]) for row in rows if row["events"] == 50}
    execute(copy, "UPDATE minutes SET total = 2.5 WHERE events = 50")
    refusal(copy)
    assert answers(copy)["a null"] == expected["a null"]


def test_what_a_damaged_view_was_is_replaced_by_a_rebuild(copy):
    execute(copy, "UPDATE minutes SET total = 2.5 WHERE events = 50")
    refusal(copy)
    store = SqliteStore(copy)
    store.begin("minutes", "p")
    again = batch(0, MINUTES, [minute(number, 0.5) for number in range(10)])
    store.apply("minutes", ViewBatch("p", 0, again.changes))
    assert store.read("minutes").num_rows == 10
    store.close()


def test_a_view_whose_ledger_or_declaration_is_gone_is_no_missing_view(copy):
    untouched = copy.read_bytes()
    execute(copy, "DELETE FROM headrace_ledger WHERE view = 'minutes'")
    for read in ("views", "a view"):
        assert "'minutes' or headrace_ledger is damaged" in str(answers(copy)[read])
    copy.write_bytes(untouched)
    execute(copy, "ALTER TABLE minutes RENAME TO minutez")
    assert "it is missing, or not declared as it was made" in refusal(copy)


def test_a_column_may_not_be_called_like_that_of_the_checksums(tmp_path):
    store = SqliteStore(tmp_path / "views.db")
    columns = pa.schema([("id", pa.string()), ("Headrace_Check", pa.int64())])
    with pytest.raises(RequestError, match=r"has a column 'headrace_check', which .* rename it"):
        store.prepare(ViewSchema("v", ("id",), columns))
    store.close()
