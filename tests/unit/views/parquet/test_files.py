"""Parquet views: no pile of small files, nothing superseded for long, nothing removed under a reader."""

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.checked_json import decode_fields, encode_fields
from headrace.errors import CorruptionError, RequestError
from headrace.views import ViewBatch, ViewSchema
from headrace.views.parquet.files import ViewFolder
from headrace.views.parquet.manifest import Part, ViewManifest, first_to_merge, merge_from
from headrace.views.parquet.store import ParquetFolder, ParquetStore


class Clock:
    now = 0

    def now_ms(self):
        return self.now

    def monotonic_ms(self):
        return self.now


SCHEMA = ViewSchema("v", ("k",), pa.schema([("k", pa.int64()), ("n", pa.int64())]))


def rows(keys, n):
    keys = list(keys)
    after = [{"k": key, "n": n} for key in keys]
    kinds = pa.array([0] * len(keys), pa.int8())
    struct = pa.struct(list(SCHEMA.columns))
    return pa.table(
        {"k": keys, "before": pa.nulls(len(keys), struct), "after": pa.array(after, struct), "kind": kinds}
    )


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    opened = ParquetStore(ParquetFolder(tmp_path), grace_ms=1000, clock=clock)
    opened.prepare(SCHEMA)
    opened.begin("v", "q")
    return opened


def files(store):
    return sorted(each.name for each in (store.place.folder / "v").glob("*.parquet"))


def parts(store):
    return ViewFolder(store.place.folder / "v").manifest().parts


def test_many_batches_leave_few_files_that_hold_little_more_than_the_rows(store, clock):
    for number in range(60):
        clock.now += 10_000
        store.apply("v", ViewBatch("q", number, rows(range(number % 7, 70, 7), number)))
    assert len(parts(store)) <= 8 and len(files(store)) <= 12
    assert sum(part.count for part in parts(store)) <= 2 * 70
    found = store.read("v")
    assert found.num_rows == 70
    assert found["n"].to_pylist() == [max(n for n in range(60) if n % 7 == key % 7) for key in range(70)]


def test_files_have_the_views_own_columns_so_that_any_tool_reads_them(store):
    store.apply("v", ViewBatch("q", 0, rows(range(3), 1)))
    (part,) = parts(store)
    assert pq.read_table(store.place.folder / "v" / part.rows).equals(store.read("v"))


def test_a_reader_of_an_older_manifest_finds_its_files_for_the_time_of_grace(store, clock):
    store.apply("v", ViewBatch("q", 0, rows(range(3), 0)))
    old = parts(store)
    for number in range(1, 4):
        store.apply("v", ViewBatch("q", number, rows(range(3), number)))
    assert old[0] not in parts(store), "merged"
    assert old[0].rows in files(store)
    clock.now += 1001
    store.apply("v", ViewBatch("q", 4, rows(range(3), 4)))
    assert old[0].rows not in files(store)


def test_what_a_crash_left_behind_is_removed_after_the_time_of_grace(store, clock):
    stray = store.place.folder / "v" / "rows-0000000099-abcdef01.parquet"
    stray.write_bytes(b"half a file")
    store.prepare(SCHEMA)
    assert stray.exists()
    clock.now += 1001
    store.prepare(SCHEMA)
    assert not stray.exists()


def test_removals_last_until_nothing_older_is_left(store):
    store.apply("v", ViewBatch("q", 0, rows(range(100), 0)))
    gone = rows(range(50), 0).rename_columns(["k", "after", "before", "kind"])
    store.apply("v", ViewBatch("q", 1, gone))
    assert store.read("v")["k"].to_pylist() == list(range(50, 100))
    for number in range(2, 30):
        store.apply("v", ViewBatch("q", number, rows([1000 + number], 1)))
    assert store.read("v").num_rows == 50 + 28
    assert all(part.removed is None for part in parts(store)[:1])


def test_damage_is_reported_with_its_file(store):
    store.apply("v", ViewBatch("q", 0, rows(range(3), 0)))
    (part,) = parts(store)
    (store.place.folder / "v" / part.rows).write_bytes(b"no Parquet")
    with pytest.raises(CorruptionError, match=r"rows-.*parquet"):
        store.read("v")
    (store.place.folder / "v" / "manifest.json").write_text("{}")
    with pytest.raises(CorruptionError, match=r"manifest\.json"):
        store.reflected("v")


def test_a_newer_format_is_refused(store):
    path = store.place.folder / "v" / "manifest.json"
    fields = decode_fields(path.read_bytes(), ()).fields
    path.write_bytes(encode_fields({**fields, "version": 2}))
    with pytest.raises(CorruptionError, match="update Headrace"):
        store.read("v")


def test_a_flipped_bit_in_the_manifest_is_damage_that_is_named_with_what_to_do(store):
    store.apply("v", ViewBatch("q", 0, rows(range(3), 0), {"t": {1: 7}}, 5, {"on_time": 3}))
    folder = ViewFolder(store.place.folder / "v")
    path, right = store.place.folder / "v" / "manifest.json", folder.manifest()
    data = path.read_bytes()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << (position % 8)
        path.write_bytes(flipped)
        try:
            assert folder.manifest() == right
        except CorruptionError as damage:
            assert str(path) in str(damage)
            assert "restore the view's folder from a copy" in str(damage)


def test_every_flipped_byte_of_a_parquet_file_is_damage_that_is_named_with_what_to_do(store):
    store.apply("v", ViewBatch("q", 0, rows(range(3), 0), {"t": {1: 7}}))
    (name,) = files(store)
    path = store.place.folder / "v" / name
    data = path.read_bytes()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << (position % 8)
        path.write_bytes(flipped)
        with pytest.raises(CorruptionError) as damage:
            store.read("v")
        assert str(path) in str(damage.value)
        assert "restore the view's folder from a copy" in str(damage.value)


def test_a_manifest_of_an_earlier_version_has_no_checksum(store):
    store.apply("v", ViewBatch("q", 0, rows(range(3), 0), {"t": {1: 7}}))
    folder, path = ViewFolder(store.place.folder / "v"), store.place.folder / "v" / "manifest.json"
    right = folder.manifest()
    fields = decode_fields(path.read_bytes(), ()).fields
    for part in fields["parts"]:
        del part["crc32c"]
    path.write_text(json.dumps(fields, indent=1))
    assert folder.manifest() == replace(right, parts=(replace(right.parts[0], crc32c={}),))
    assert store.read("v").num_rows == 3


def test_a_manifest_is_the_same_after_a_round_trip(store):
    store.apply("v", ViewBatch("q", 0, rows(range(3), 0), {"t": {1: 7}}, 5, {"on_time": 3}))
    manifest = ViewFolder(store.place.folder / "v").manifest()
    assert ViewManifest.loads(manifest.dumps()) == manifest


def test_it_keeps_no_changes_and_says_so(store):
    with pytest.raises(RequestError, match="keeps no changes"):
        store.changes("v")


@pytest.mark.parametrize(
    ("counts", "start"),
    [
        ([], None),
        ([5], None),
        ([5, 5, 5], None),
        ([5, 5, 5, 5], 0),
        ([1000, 5, 5, 5, 5], 1),
        ([1000, 100, 5, 5, 5], None),
        ([1000, 90, 10, 10, 5], 1),
        ([80, 5, 5, 5, 5], 0),
        ([0, 0, 0, 0], 0),
    ],
)
def test_small_parts_are_merged_with_their_like(counts, start):
    assert merge_from(counts) == start


def test_parts_that_were_added_together_are_merged_together_and_count_as_one():
    def parts(*numbers, count=10):
        return [Part(None, None, count, number=number) for number in numbers]

    assert first_to_merge([]) is None
    assert first_to_merge(parts(1, 1, 1, 1, 2, 2, 3, 3)) is None
    assert first_to_merge(parts(1, 1, 2, 2, 3, 3, 4, 4)) == 0
    assert first_to_merge(parts(0, 0, 0, 0)) == 0, "those of earlier versions were added one by one"
    assert first_to_merge([*parts(7, 7, count=10_000), *parts(1, 1, 2, 3, 4)]) == 2


def test_parts_stay_few_and_rows_are_rewritten_a_logarithmic_number_of_times():
    counts, rewritten, batches = [], 0, 3000
    for _ in range(batches):
        counts.append(10)
        if (start := merge_from(counts)) is not None:
            rewritten += sum(counts[start:])
            counts[start:] = [sum(counts[start:])]
        assert len(counts) <= 16
    assert rewritten / (10 * batches) < 16
