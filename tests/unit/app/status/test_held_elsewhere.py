"""What executors keep at a URL, as the driver notes it beside its status, and others read it."""

import json

from headrace.app.status import AppStatus, ClusterStatus, QueryStatus, read_state, read_status
from headrace.app.status.description import (
    AppDescription,
    OperatorDescription,
    StateDescription,
)
from headrace.app.status.state import FILE, write_held
from headrace.app.status.status import StatusFile
from headrace.streams.engine import encode_json
from headrace.streams.engine.state.checkpoint_records import HeldAtUrl
from headrace.streams.engine.state.objects import read_receipts

FOLDER = "dataflows/joined/checkpoint/stages/1"


def receipt(bucket, rows, put_ms):
    held = [
        {"bytes": 10, "rows": [0], "oldest_us": [None]},
        {"bytes": 100 * rows, "rows": [rows, 1], "oldest_us": [7, None]},
    ]
    fields = {"token": f"t{bucket}", "bytes": 999, "held": held, "put_ms": put_ms}
    return encode_json({f"1/{bucket}": fields})


def described():
    operator = OperatorDescription(name="join", node="join:joined", inputs=("orders", "customers"))
    clock = OperatorDescription(name="clock", node="", inputs=())
    state = StateDescription(query="view joined", folder=FOLDER, operators=(clock, operator))
    names = AppDescription.__dataclass_fields__
    fields = dict.fromkeys(names, ()) | {"app": "shop", "states": (state,)}
    return AppDescription(**{name: value for name, value in fields.items() if name in names})


def test_what_tasks_report_is_what_onlookers_see(tmp_path):
    receipts = {}
    for bucket, rows, put_ms in ((0, 4, 12.0), (1, 4, 80.5), (2, 12, 9.0)):
        receipts |= read_receipts(receipt(bucket, rows, put_ms))
    held = HeldAtUrl(batch=6, receipts=receipts)
    assert held.put_ms == 80.5
    write_held(tmp_path, {FOLDER: held.by_stage()[1]})
    (state,) = read_state(tmp_path, described())
    assert (state.query, state.operator, state.rows) == ("view joined", "join", 4 + 4 + 12 + 3)
    assert state.bytes == {0: 400, 1: 400, 2: 1200}
    assert (state.skew, state.oldest_us) == (13 / 5, 7)


def test_a_file_that_cannot_be_read_is_no_state(tmp_path):
    (tmp_path / FILE).write_text(json.dumps({"held": {FOLDER: [{"other": 1}]}}))
    assert [each.rows for each in read_state(tmp_path, described())] == [0]


def test_the_status_names_the_cluster_and_one_without_it_is_read_as_well(tmp_path):
    file = StatusFile(tmp_path, now=lambda: 1.0)
    file.query("orders", buckets=8, tasks=4, put_ms=80.5)
    cluster = ClusterStatus(master="spark://m:7077", executors=2, cores=4)
    file.note(lambda status, _: AppStatus(**{**_fields(status), "cluster": cluster}))
    file.close()
    status = read_status(tmp_path)
    assert status.cluster == cluster
    assert (status.query("orders").buckets, status.query("orders").tasks) == (8, 4)
    assert status.query("orders").put_ms == 80.5
    path = tmp_path / "status.json"
    fields = json.loads(path.read_text())
    del fields["cluster"], fields["crc32c"]
    for query in fields["queries"].values():
        for name in ("buckets", "tasks", "put_ms"):
            del query[name]
    path.write_text(json.dumps(fields))
    earlier = read_status(tmp_path)
    assert earlier.cluster is None and earlier.query("orders").buckets == QueryStatus().buckets


def _fields(status):
    return {name: getattr(status, name) for name in AppStatus.__dataclass_fields__}
