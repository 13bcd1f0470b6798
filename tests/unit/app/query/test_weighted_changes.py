"""What rows with weights change of a view."""

import math

import pyarrow as pa
import pytest

from headrace.app.query.sinks.graph_batch import weighted_changes
from headrace.streams.operators.operator import stamp_fields
from headrace.views import ChangeKind, ViewSchema

NESTED = {
    "array": (pa.list_(pa.int64()), [1, None], []),
    "struct": (pa.struct([("a", pa.float64())]), {"a": math.nan}, {"a": -0.0}),
    "map": (pa.map_(pa.string(), pa.int64()), [("x", 1)], [("x", 2)]),
}
UPDATE, RETRACTION = int(ChangeKind.UPDATE), int(ChangeKind.RETRACTION)


def changes_of(kind, *rows):
    """Kind, key and value after the change, of rows of (weight, key, value)."""
    columns = pa.schema([("id", pa.float64()), ("value", kind)])
    stamps = {"_partition": 0, "_event_time": 0, "_watermark": None}
    table = pa.Table.from_pylist(
        [
            {"id": key, "value": value, "_weight": weight, "_offset": at} | stamps
            for at, (weight, key, value) in enumerate(rows)
        ],
        pa.schema([*columns, *stamp_fields()]),
    )
    changes = weighted_changes(ViewSchema("v", ("id",), columns), [table])
    rows = changes.to_pylist() if changes else []
    return [(each["kind"], each["id"], each["after"] and each["after"]["value"]) for each in rows]


@pytest.mark.parametrize("kind, old, new", NESTED.values(), ids=NESTED)
def test_columns_that_are_nested_are_replaced_and_removed_like_any_other(kind, old, new):
    rows = [(-1, 1.0, old), (1, 1.0, new), (-1, 2.0, old), (-1, 3.0, old), (1, 3.0, old)]
    found = changes_of(kind, *rows)
    assert repr(found) == repr([(RETRACTION, 2.0, None), (UPDATE, 1.0, new)])


@pytest.mark.parametrize("key", [None, math.nan, 0.0])
def test_a_row_that_is_replaced_is_not_retracted_whatever_its_key(key):
    found = changes_of(pa.string(), (-1, key, "old"), (1, key, "new"))
    assert repr(found) == repr([(UPDATE, key, "new")])


def test_zero_is_one_key_with_either_sign():
    assert changes_of(pa.string(), (-1, 0.0, "old"), (1, -0.0, "new")) == [(UPDATE, 0.0, "new")]
