"""Whether a changed application still fits its checkpoint."""

import copy
import json

import pytest

from headrace.app.manifest import Manifest, reasons_to_rebuild
from headrace.errors import ConfigError

QUERY = {
    "stream": {
        "decoder": "json",
        "event_time": "at",
        "sent_at": None,
        "lateness_us": 10,
        "max_ahead_us": 20,
    },
    "fields": {"user": "string", "amount": "int64"},
    "views": {"a": {"steps": [], "window": "Tumbling(size_us=60)", "by": ["user"]}},
}


def changed(**changes):
    query = copy.deepcopy(QUERY)
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = query
        for parent in parents:
            place = place[parent]
        place[last] = value
    return query


def test_the_same_application_fits():
    assert reasons_to_rebuild(QUERY, changed()) == []


def test_a_column_that_is_added_fits():
    assert reasons_to_rebuild(QUERY, changed(fields__more="string")) == []


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (changed(stream__lateness_us=11), "lateness_us was 10 and is 11"),
        (changed(fields__amount="double"), "column 'amount' was int64 and is double"),
        (changed(views__b={"steps": []}), "view 'b' is new"),
        (changed(views={}), "view 'a' is gone"),
        (changed(views__a__window="Tumbling(size_us=61)"), "view 'a': window was"),
        (changed(views__a__steps=["where x"]), "view 'a': steps was [] and is ['where x']"),
    ],
)
def test_what_the_state_cannot_follow_is_named(query, reason):
    (found,) = reasons_to_rebuild(QUERY, query)
    assert reason in found


def test_a_manifest_is_read_as_it_was_written(tmp_path):
    manifest = Manifest.new(QUERY, 8)
    manifest.write(tmp_path / "query")
    assert Manifest.read(tmp_path / "query") == manifest
    assert Manifest.new(QUERY, 8).query_id != manifest.query_id


def test_there_may_be_none(tmp_path):
    assert Manifest.read(tmp_path) is None


def test_a_newer_one_is_refused(tmp_path):
    Manifest.new(QUERY, 8).write(tmp_path)
    fields = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(fields | {"format": 99}))
    with pytest.raises(ConfigError, match="newer version"):
        Manifest.read(tmp_path)
