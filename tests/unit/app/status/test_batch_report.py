"""Reports of batches, as lines of output."""

import json
from collections import Counter

from headrace.app.status.batch_report import BatchReport


def test_a_report_is_json_with_the_counts_of_every_view():
    report = BatchReport(
        query="orders",
        batch_id=3,
        records=7,
        watermark_us=None,
        following={0: 7},
        counters={"revenue": Counter(on_time=5, dead=2)},
        changed={"revenue": 1},
        inputs={"revenue": {"orders": Counter(on_time=5)}},
    )
    assert json.loads(json.dumps(report.to_json())) == {
        "query": "orders",
        "batch_id": 3,
        "records": 7,
        "watermark_us": None,
        "following": {"0": 7},
        "counters": {"revenue": {"on_time": 5, "dead": 2}},
        "changed": {"revenue": 1},
        "inputs": {"revenue": {"orders": {"on_time": 5}}},
    }
