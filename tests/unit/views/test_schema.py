"""What a view may be, in words that say what to do."""

import pyarrow as pa
import pytest

from headrace.errors import RequestError
from headrace.views import ViewSchema

TEXT = pa.schema([("k", pa.string()), ("n", pa.int64())])


@pytest.mark.parametrize(
    ("key", "columns", "cause"),
    [
        ((), TEXT, "no key"),
        (("x",), TEXT, "its columns are k, n"),
        (("k", "k"), TEXT, "twice"),
        (("k",), pa.schema([]), "no columns"),
        (("k",), pa.schema([("k", pa.string()), ("K", pa.string())]), "differ in case only"),
        (("k",), pa.schema([("k", pa.list_(pa.string()))]), "take single fields"),
        (("k",), pa.schema([("k", pa.uint64())]), "which no store keeps"),
        (("k",), pa.schema([("k", pa.string()), ("t", pa.timestamp("ns"))]), "which no store keeps"),
        (("k",), pa.schema([("k", pa.string()), ("l", pa.list_(pa.duration("us")))]), "which no store keeps"),
        (("k",), pa.schema([("k", pa.string()), ("", pa.string())]), "column's name"),
        (("k",), pa.schema([("k", pa.string()), ("a\0", pa.string())]), "column's name"),
        (("k",), pa.schema([("k", pa.string()), ("ä" * 32, pa.string())]), "column's name"),
    ],
)
def test_what_no_store_could_keep_is_refused(key, columns, cause):
    with pytest.raises(RequestError, match=cause):
        ViewSchema("v", key, columns)


def test_a_schema_is_the_same_after_a_round_trip():
    schema = ViewSchema("v", ("k",), TEXT, keep_changes=5)
    assert ViewSchema.from_json(schema.to_json()) == schema


def test_differences_are_named():
    old = ViewSchema("v", ("k",), TEXT)
    new = ViewSchema("v", ("n",), pa.schema([("n", pa.string()), ("m", pa.int64())]))
    told = old.differences(new)
    for each in (
        "key was k and now is n",
        "column 'k' is gone",
        "column 'm' is new",
        "was int64 and now is string",
    ):
        assert each in told
    assert old.differences(old) == "nothing" and old.same_rows(ViewSchema("w", ("k",), TEXT, keep_changes=1))
