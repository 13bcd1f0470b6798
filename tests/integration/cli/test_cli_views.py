"""`headrace views`: what views show and how they change, on every store that other processes can open."""

import json
import select
import subprocess
import sys
import time
from contextlib import closing

import pyarrow as pa
import pytest

from headrace.app.status.description import (
    AppDescription,
    StoreDescription,
    ViewDescription,
    write_description,
)
from headrace.cli.main import run
from headrace.cli.show.views import differences, render_change
from headrace.views import ChangeKind, ViewBatch, ViewChange, ViewSchema, open_store

COLUMNS = pa.schema([("region", pa.string()), ("revenue", pa.float64()), ("tags", pa.list_(pa.string()))])
SCHEMA = ViewSchema("revenue", ("region",), COLUMNS, keep_changes=100)


def changes(*rows, kind=ChangeKind.UPDATE):
    after = pa.array([dict(zip(COLUMNS.names, row, strict=True)) for row in rows], pa.struct(list(COLUMNS)))
    return pa.table(
        {
            "region": [row[0] for row in rows],
            "kind": pa.array([int(kind)] * len(rows), pa.int8()),
            "before": pa.nulls(len(rows), after.type),
            "after": after,
        }
    )


class Application:
    """One view in a store, and the description of the application that it is of."""

    def __init__(self, data, url, bootstrap="127.0.0.1:1"):
        self.data, self.url, self.bootstrap, self.batches = data, url, bootstrap, 0
        view = ViewDescription(
            name="revenue",
            doc="What regions earn",
            kind="rows",
            window=None,
            key=("region",),
            columns={each.name: str(each.type) for each in COLUMNS},
            query="orders",
            stream="orders",
            topic=None,
            store=StoreDescription(url=url),
        )
        self.data.mkdir(parents=True)
        write_description(
            data,
            AppDescription(
                app="shop",
                file=None,
                bootstrap=bootstrap,
                streams=(),
                views=(view,),
                dead_topic="shop.dead",
                late_topic="shop.late",
                hooks=(),
                nodes=(),
                edges=(),
            ),
        )
        with closing(self.open()) as store:
            store.prepare(SCHEMA)
            store.begin("revenue", "q")

    def open(self):
        return open_store(self.url, bootstrap=self.bootstrap)

    def apply(self, *rows):
        with closing(self.open()) as store:
            store.apply("revenue", ViewBatch("q", self.batches, changes(*rows)))
        self.batches += 1


@pytest.fixture(params=["sqlite", "parquet", "topic"])
def shop(request, tmp_path):
    data = tmp_path / ".headrace" / "shop"
    if request.param == "topic":
        log = request.getfixturevalue("our_log")
        made = Application(data, f"topic://{tmp_path.name}-revenue", log.bootstrap_servers)
    else:
        made = Application(data, f"{request.param}:///{tmp_path}/views")
    made.apply(("north", 12.5, ["a", "b"]), ("south", 3.0, None))
    deadline = time.monotonic() + 30
    with closing(made.open()) as store:  # on a topic the end of a transaction may be a moment behind
        while store.read("revenue").num_rows < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    return made


def headrace(capsys, *arguments, expect=0):
    assert run(["views", *arguments]) == expect
    shown = capsys.readouterr()
    return shown.out if expect == 0 else shown.err


def test_rows_are_shown_as_a_table_as_json_and_as_csv(shop, capsys):
    data = ("--data", str(shop.data))
    table = headrace(capsys, "show", "revenue", *data).splitlines()
    assert [line.split() for line in table if "north" in line] == [["north", "12.5", '["a","b"]']]
    document = json.loads(headrace(capsys, "show", "revenue", "--json", *data))
    assert document["rows"][1] == {"region": "south", "revenue": 3.0, "tags": None}
    assert document["reflected"]["batch_id"] == 0
    assert headrace(capsys, "show", "revenue", "--csv", *data) == (
        'region,revenue,tags\r\nnorth,12.5,"[""a"",""b""]"\r\nsouth,3.0,\r\n'
    )


def test_conditions_orders_and_limits_are_those_of_the_http_api(shop, capsys):
    data = ("--data", str(shop.data), "--csv")

    def regions(*flags):
        return [
            line.partition(",")[0] for line in headrace(capsys, "show", "revenue", *data, *flags).split()
        ][1:]

    assert regions("--where", "revenue.ge=10") == ["north"]
    assert regions("-w", "region.in=south,east", "-w", "tags.null=true") == ["south"]
    assert regions("--order", "-region") == ["south", "north"]
    assert regions("--limit", "1") == ["north"]


def test_one_that_follows_sees_changes_until_it_is_told_to_stop(shop):
    command = [
        sys.executable,
        "-m",
        "headrace",
        "views",
        "follow",
        "revenue",
        "--json",
        "--where",
        "region=north",
    ]
    process = subprocess.Popen(
        [*command, "--data", str(shop.data)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        # It tells of what changes from its first look on, which nobody sees from outside.
        seen, amount, deadline = None, 20.0, time.monotonic() + 120
        while seen is None:
            assert process.poll() is None and time.monotonic() < deadline
            amount += 1
            shop.apply(("south", amount, None), ("north", amount, None))
            if select.select([process.stdout], [], [], 0.3)[0]:
                seen = json.loads(process.stdout.readline())
        assert seen["key"] == {"region": "north"} and seen["kind"] == "update"
        assert seen["after"]["revenue"] > 20
        process.terminate()
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert "south" not in out
    assert (process.returncode, json.loads(err)) == (0, {"note": "stopped"})


def test_the_one_application_of_the_folder_is_found_and_what_is_wrong_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "there is none in .headrace/" in headrace(capsys, "list", expect=2)
    Application(tmp_path / ".headrace" / "shop", f"sqlite:///{tmp_path}/views.db")
    assert "What regions earn" in headrace(capsys, "list")
    assert json.loads(headrace(capsys, "list", "--json"))["views"][0]["key"] == ["region"]
    assert "no view 'revenu'; did you mean 'revenue'?" in headrace(capsys, "show", "revenu", expect=1)
    wrong = headrace(capsys, "show", "revenue", "--where", "regio=x", expect=1)
    assert "there is no column 'regio'; did you mean 'region'?" in wrong
    assert "is not COLUMN=VALUE" in headrace(capsys, "show", "revenue", "--where", "region", expect=2)
    assert "give only one" in headrace(capsys, "show", "revenue", "--json", "--csv", expect=2)
    Application(tmp_path / ".headrace" / "other", f"sqlite:///{tmp_path}/others.db")
    assert ".headrace/other, .headrace/shop" in headrace(capsys, "list", expect=2)


def test_a_change_is_one_line_that_says_what_is_new():
    row = {"region": "north", "revenue": 12.5, "tags": None}
    first = ViewChange(1, 0, 0, {"region": "north"}, None, row)
    assert render_change(first, "close") == "close region=north: revenue=12.5, tags=–"  # noqa: RUF001
    later = ViewChange(2, 1, 2, {"region": "north"}, row, {**row, "revenue": 20.0})
    assert render_change(later, "correction") == "correction region=north: revenue=12.5 → 20.0"
    assert render_change(ViewChange(3, 2, 3, {"region": "north"}, row, None), "retraction") == (
        "retraction region=north: removed"
    )


def test_rows_are_compared_where_no_changes_are_kept():
    before = {("a",): {"k": "a", "n": 1}, ("b",): {"k": "b", "n": 2}}
    after = {("b",): {"k": "b", "n": 3}, ("c",): {"k": "c", "n": 4}}
    found = [(each.sequence, each.key["k"], each.after) for each in differences(before, after, ("k",), 7, 10)]
    assert found == [(11, "a", None), (12, "b", {"k": "b", "n": 3}), (13, "c", {"k": "c", "n": 4})]
