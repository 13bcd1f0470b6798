"""Stores of every kind for the contract and crash suites, and batches to write to them."""

import decimal
import itertools
import math
from collections.abc import Callable
from datetime import UTC, date, datetime

import pyarrow as pa

from headrace.views import ChangeKind, ViewBatch, ViewSchema

_names = itertools.count()

COUNTS = ViewSchema(
    "counts",
    ("region", "window_start"),
    pa.schema(
        [
            pa.field("region", pa.string()),
            pa.field("window_start", pa.timestamp("us", "UTC")),
            pa.field("window_end", pa.timestamp("us", "UTC")),
            pa.field("orders", pa.int64()),
            pa.field("revenue", pa.float64()),
        ]
    ),
    keep_changes=100,
)


def minute(number: int) -> datetime:
    return datetime.fromtimestamp(1_700_000_000 // 60 * 60 + 60 * number, UTC)


def row(region: str | None, window: int, orders: int | None, revenue: float | None = 1.5) -> dict:
    return {
        "region": region,
        "window_start": minute(window),
        "window_end": minute(window + 1),
        "orders": orders,
        "revenue": revenue,
    }


def put(after: dict, *, before: dict | None = None, kind: ChangeKind | None = None) -> dict:
    """A change that puts a row in place."""
    chosen = kind if kind is not None else ChangeKind.CORRECTION if before else ChangeKind.CLOSE
    return {"before": before, "after": after, "kind": int(chosen)}


def remove(before: dict) -> dict:
    return {"before": before, "after": None, "kind": int(ChangeKind.RETRACTION)}


def table(changes: list[dict], schema: ViewSchema = COUNTS) -> pa.Table:
    """Changes as operators write them: the key beside `before` and `after`."""
    struct = pa.struct(list(schema.columns))
    keys = {name: [(each["after"] or each["before"])[name] for each in changes] for name in schema.key}
    columns = [pa.array(keys[each.name], each.type) for each in schema.key_fields()]
    columns += [pa.array([each[name] for each in changes], struct) for name in ("before", "after")]
    columns.append(pa.array([each["kind"] for each in changes], pa.int8()))
    return pa.table(columns, names=[*schema.key, "before", "after", "kind"])


def batch(number: int, *changes: dict, query: str = "q", schema: ViewSchema = COUNTS, **fields) -> ViewBatch:
    return ViewBatch(query, number, table(list(changes), schema) if changes else None, **fields)


def new_name(prefix: str) -> str:
    return f"{prefix}-{next(_names)}"


Opener = Callable[[], object]

MANY_TYPES = ViewSchema(
    "types",
    ("id",),
    pa.schema(
        [
            pa.field("id", pa.int32()),
            pa.field("text", pa.string()),
            pa.field("tiny", pa.int8()),
            pa.field("small", pa.int16()),
            pa.field("number", pa.int32()),
            pa.field("big", pa.int64()),
            pa.field("yes", pa.bool_()),
            pa.field("single", pa.float32()),
            pa.field("double", pa.float64()),
            pa.field("price", pa.decimal128(12, 2)),
            pa.field("huge", pa.decimal128(38, 10)),
            pa.field("moment", pa.timestamp("us", "UTC")),
            pa.field("local", pa.timestamp("us")),
            pa.field("day", pa.date32()),
            pa.field("raw", pa.binary()),
            pa.field("names", pa.list_(pa.string())),
            pa.field("doubles", pa.list_(pa.float64())),
            pa.field("nested", pa.struct([("at", pa.timestamp("us", "UTC")), ("d", pa.decimal128(5, 1))])),
            pa.field("mapped", pa.map_(pa.string(), pa.binary())),
        ]
    ),
)

_TYPED = [
    {
        "text": "ordinary",
        "tiny": 1,
        "small": 2,
        "number": 3,
        "big": 4,
        "yes": True,
        "single": 0.1,
        "double": 0.1,
        "price": decimal.Decimal("12.50"),
        "huge": decimal.Decimal("0.0000000001"),
        "moment": datetime(2026, 1, 31, 12, 0, 0, 1, UTC),
        "local": datetime(2026, 1, 31, 12),
        "day": date(2026, 1, 31),
        "raw": b"\x00\xff",
        "names": ["a", None, ""],
        "doubles": [1.0, math.nan, -math.inf, -0.0, None],
        "nested": {"at": datetime(2026, 1, 1, tzinfo=UTC), "d": decimal.Decimal("-1.5")},
        "mapped": [("k", b"\xfe"), ("l", None)],
    },
    {
        "text": "",
        "tiny": -128,
        "small": -(1 << 15),
        "number": -(1 << 31),
        "big": -(1 << 63),
        "yes": False,
        "single": -0.0,
        "double": -0.0,
        "price": decimal.Decimal("-9999999999.99"),
        "huge": decimal.Decimal("-" + "9" * 28 + "." + "9" * 10),
        "moment": datetime(1, 1, 1, tzinfo=UTC),
        "local": datetime(9999, 12, 31, 23, 59, 59, 999999),
        "day": date(1, 1, 1),
        "raw": b"",
        "names": [],
        "doubles": [],
        "nested": {"at": None, "d": None},
        "mapped": [],
    },
    {
        "text": "\"quoted\", 'single', back\\slash, \n, \t, ü, 中, \U0001f30a, \\N, \\.",
        "tiny": 127,
        "small": (1 << 15) - 1,
        "number": (1 << 31) - 1,
        "big": (1 << 63) - 1,
        "single": math.inf,
        "double": math.nan,
        "price": decimal.Decimal("0.00"),
        "moment": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
        "local": datetime(1969, 12, 31, 23, 59, 59, 999999),
        "day": date(9999, 12, 31),
        "raw": bytes(range(256)),
    },
    {"single": math.nan, "double": -math.inf, "day": date(1969, 12, 31)},
    {"double": 5e-324},
    {"double": 1.7976931348623157e308},
    {"double": 123456789.12345679},
]


def typed_rows() -> pa.Table:
    """Every supported type with its awkward values; rows are numbered by `id`."""
    blank = dict.fromkeys(MANY_TYPES.columns.names)
    rows = [{**blank, **each, "id": number} for number, each in enumerate(_TYPED)]
    return pa.Table.from_pylist(rows, MANY_TYPES.columns)


def changes_of(rows: pa.Table, schema: ViewSchema) -> pa.Table:
    """A change that puts each row in place, without going through Python values."""
    structs = pa.StructArray.from_arrays(
        [each.combine_chunks() for each in rows.columns], fields=list(rows.schema)
    )
    kinds = pa.array([int(ChangeKind.CLOSE)] * rows.num_rows, pa.int8())
    before = pa.nulls(rows.num_rows, structs.type)
    return pa.table(
        {**{name: rows[name] for name in schema.key}, "before": before, "after": structs, "kind": kinds}
    )


def same_bits(left: pa.Table, right: pa.Table) -> bool:
    """Equal with NaN equal to itself and -0.0 different from 0.0: what a serialised form says."""
    return left.schema.equals(right.schema) and _bits(left) == _bits(right)


def _bits(rows: pa.Table) -> str:
    return repr(rows.to_pylist())
