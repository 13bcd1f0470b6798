"""What a store must have kept for its view to be proved."""

from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.app.query.checkpoint.manifest import FORMAT, Manifest
from headrace.app.verify.recompute import require_as_written
from headrace.errors import RequestError
from headrace.views import Reflected, Snapshot, ViewSchema

SCHEMA = ViewSchema("totals", ("k",), pa.schema([("k", pa.string()), ("n", pa.int64())]))
MANIFEST = Manifest.new({}, 8, begins={})


def served(batch, *, query=MANIFEST.query_id, columns=("k", "n")):
    rows = pa.table({name: pa.array([], SCHEMA.columns.field(name).type) for name in columns})
    return Snapshot(rows, Reflected(query_id=query, batch_id=batch))


@pytest.mark.parametrize("found", [served(-1, query=None), served(-1), served(13)])
def test_a_store_that_lost_batches_proves_nothing(found):
    with pytest.raises(RequestError, match=r"which has done 14: its store was emptied .*--rebuild"):
        require_as_written(SCHEMA, found, MANIFEST, 14)


def test_a_view_of_other_columns_says_that_the_application_changed():
    with pytest.raises(RequestError, match=r"the columns k, n, and it is served with k: .*--rebuild-view"):
        require_as_written(SCHEMA, served(14, columns=("k",)), MANIFEST, 14)


def test_a_view_of_an_older_version_is_not_compared():
    older = replace(MANIFEST, format=FORMAT - 1)
    with pytest.raises(RequestError, match=r"built by an older version .*format 2, now 3.* --rebuild$"):
        require_as_written(SCHEMA, served(14), older, 14)


@pytest.mark.parametrize(
    ("found", "manifest", "done"),
    [
        (served(14), MANIFEST, 14),
        (served(15), MANIFEST, 14),  # the batch is in the store before its query knows that it is done
        (served(-1, query=None), MANIFEST, -1),
        (served(3, query="another"), MANIFEST, 14),  # a rebuild is under way
        (served(3), None, -1),
    ],
)
def test_a_store_with_all_batches_that_were_done_is_taken(found, manifest, done):
    require_as_written(SCHEMA, found, manifest, done)
