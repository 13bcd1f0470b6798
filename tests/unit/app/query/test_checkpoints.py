"""Where a query goes on, as its checkpoint and its stream say."""

import json
from dataclasses import replace

import pytest

from headrace.app.query.checkpoint.checkpoints import goes_on_from
from headrace.streams.spec import StreamSpec


@pytest.fixture
def spec():
    made = StreamSpec(topic="orders", schema="amount double")
    return replace(made, begins=((0, 100), (1, 7)))


def noted(folder, batch_id, following, *, done=True):
    """A batch as Spark notes it: its offsets before, its number once it is done."""
    for name in ("offsets", "commits"):
        (folder / "checkpoint" / name).mkdir(parents=True, exist_ok=True)
    text = "v1\n{}\n" + json.dumps({"next": {str(each): next_ for each, next_ in following.items()}})
    (folder / "checkpoint" / "offsets" / str(batch_id)).write_text(text)
    if done:
        (folder / "checkpoint" / "commits" / str(batch_id)).write_text("v1\n{}")


def test_a_query_without_checkpoint_goes_on_from_where_it_begins(tmp_path, spec):
    assert goes_on_from(tmp_path, spec) == {0: 100, 1: 7}


def test_a_query_goes_on_behind_the_last_batch_that_was_done_in_silent_partitions_too(tmp_path, spec):
    noted(tmp_path, 0, {0: 150, 1: 7})
    noted(tmp_path, 1, {0: 200, 1: 7, 2: 3})
    noted(tmp_path, 2, {0: 300, 1: 7, 2: 3}, done=False)
    assert goes_on_from(tmp_path, spec) == {0: 200, 1: 7, 2: 3}
