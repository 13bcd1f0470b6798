"""What a sink leaves out: records that were written before a rebuild."""

import pyarrow as pa

from headrace.app.query.sinks.batch_records import unwritten

TABLE = pa.table({"partition": [0, 0, 1, 1, 2], "offset": [4, 5, 0, 9, 3], "value": list("abcde")})


def test_only_records_that_no_query_wrote_are_left():
    (left,) = unwritten([TABLE], {0: 5, 1: 9}, "partition", "offset")
    assert left["value"].to_pylist() == ["b", "d", "e"]


def test_without_a_rebuild_every_record_is_written():
    (left,) = unwritten([TABLE], {}, "partition", "offset")
    assert left is TABLE


def test_a_table_may_be_left_without_rows():
    (left,) = unwritten([TABLE], {0: 100, 1: 100, 2: 100}, "partition", "offset")
    assert left.num_rows == 0
    assert list(unwritten([], {0: 1}, "partition", "offset")) == []
