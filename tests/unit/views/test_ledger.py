"""The ledger of a view, as it is stored."""

import json

from headrace.views.ledger import Reflected, reflected_from_json, reflected_to_json

REFLECTED = Reflected(
    query_id="q",
    batch_id=3,
    offsets={"orders": {0: 7}},
    watermark_us=5,
    counters={"on_time": 6, "dead": 1},
)


def test_what_a_view_reflects_is_read_as_it_was_written():
    assert reflected_from_json(json.loads(json.dumps(reflected_to_json(REFLECTED)))) == REFLECTED


def test_what_an_earlier_version_wrote_is_read():
    written = reflected_to_json(REFLECTED)
    written["books"] = written.pop("counters")
    assert reflected_from_json(json.loads(json.dumps(written))) == REFLECTED
