"""The Pipeline panel of an application with tables and joins: stages, state, and why they are planned so."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import expect
from tests.browser.consoles import Console

from headrace.app.status.description import (
    AppDescription,
    OperatorDescription,
    PipelineEdge,
    PipelineNode,
    StateDescription,
    StoreDescription,
    ViewDescription,
    write_description,
)
from headrace.streams.engine.state.files import BucketFiles
from headrace.streams.engine.state.log import Head
from headrace.views import ChangeKind, ViewBatch, ViewSchema, open_store

VIEW, FOLDER = "per_region", "dataflows/per_region/checkpoint/stages"
OPERATORS = (
    ("table", "table shop.customers", 0, ("shop.customers",)),
    ("join", "left join on customer_id", 1, ("shop.orders", "table shop.customers")),
    ("group", "group by region", 2, ("left join on customer_id",)),
)
WHY = "split: reads what table shop.customers makes, by a key of its own, behind another shuffle"


def description(data: Path) -> AppDescription:
    nodes = [
        PipelineNode(id=f"topic:{name}", kind="topic", name=name, label=name)
        for name in ("shop.orders", "shop.customers")
    ]
    nodes += [
        PipelineNode(
            id=f"step:{VIEW}:{place}",
            kind=kind,
            name=VIEW,
            label=label,
            stage=stage,
            why=f"stage {stage}: {WHY}",
        )
        for place, (kind, label, stage, _) in enumerate(OPERATORS)
    ]
    nodes += [
        PipelineNode(id="query:q", kind="query", name=f"view {VIEW}", label="3 stages over 2 topics"),
        PipelineNode(id=f"view:{VIEW}", kind="view", name=VIEW, label=VIEW),
    ]
    pairs = [
        ("topic:shop.customers", f"step:{VIEW}:0"),
        ("topic:shop.orders", f"step:{VIEW}:1"),
        (f"step:{VIEW}:0", f"step:{VIEW}:1"),
        (f"step:{VIEW}:1", f"step:{VIEW}:2"),
        (f"step:{VIEW}:2", "query:q"),
        ("query:q", f"view:{VIEW}"),
    ]
    clock = OperatorDescription(name="clock", node="", inputs=())
    states = [
        StateDescription(
            query=f"view {VIEW}",
            folder=f"{FOLDER}/{stage}",
            operators=(
                clock,
                OperatorDescription(name=label, node=f"step:{VIEW}:{place}", inputs=inputs),
            ),
        )
        for place, (_, label, stage, inputs) in enumerate(OPERATORS)
    ]
    view = ViewDescription(
        name=VIEW,
        doc="Orders of each region.",
        kind="dataflow",
        window=None,
        key=("region",),
        columns={"region": "string", "orders": "int64"},
        query=f"view {VIEW}",
        stream=None,
        topic=None,
        store=StoreDescription(url=f"sqlite:///{data / 'views.db'}"),
    )
    return AppDescription(
        app="shop",
        file="shop.py",
        bootstrap="",
        streams=(),
        views=(view,),
        dead_topic="shop.dead",
        late_topic="shop.late",
        hooks=(),
        nodes=tuple(nodes),
        edges=tuple(PipelineEdge(tail=tail, head=head) for tail, head in pairs),
        states=tuple(states),
    )


def keep(data, stage, bucket, rows, size) -> None:
    """What the newest entry of a bucket says of its state."""
    held = [
        {"bytes": 20, "rows": [0], "oldest_us": [None]},
        {"bytes": size, "rows": rows, "oldest_us": [1_700_000_000_000_000] * len(rows)},
    ]
    head = Head(
        number=0,
        query="q",
        token="t",
        made_from="",
        base=0,
        watermark_us=0,
        delta_bytes=0,
        snapshot_bytes=0,
        held=held,
    )
    BucketFiles(data / FOLDER / str(stage), bucket, "q").put(head, [b"", b""])


def keep_rows(data) -> None:
    """The view has a row, and reflects events of an hour ago."""
    schema = ViewSchema(VIEW, ("region",), pa.schema([("region", pa.string()), ("orders", pa.int64())]))
    row = {"region": "north", "orders": 7}
    changes = pa.table(
        {
            "region": ["north"],
            "before": pa.array([None], pa.struct(list(schema.columns))),
            "after": pa.array([row], pa.struct(list(schema.columns))),
            "kind": pa.array([int(ChangeKind.UPDATE)], pa.int8()),
        }
    )
    watermark_us = int((time.time() - 3600) * 1e6)
    with closing(open_store(f"sqlite:///{data / 'views.db'}")) as store:
        store.prepare(schema)
        store.begin(VIEW, "q")
        store.apply(VIEW, ViewBatch("q", 0, changes, watermark_us=watermark_us))


@pytest.fixture
def console(tmp_path, broker) -> Iterator[Console]:
    data = tmp_path / "data"
    data.mkdir()
    write_description(data, description(data))
    keep_rows(data)
    for bucket in range(2):
        keep(data, 0, bucket, [600], 40_000)
        keep(data, 1, bucket, [25_000, 600], 1_500_000)
        keep(data, 2, bucket, [3], 500)
    with Console(bootstrap=broker.bootstrap, data=data) as console:
        yield console


def test_operators_show_what_they_keep_and_why_they_are_where_they_are(console, open_page):
    page = open_page("pipeline")
    join = page.locator(f'[data-node="step:{VIEW}:1"]')
    expect(join).to_contain_text("left join on customer_id")
    expect(join).to_contain_text("join · stage 1")
    expect(join).to_contain_text("51.2K rows, 3.0 MB")
    expect(page.locator(f'[data-node="step:{VIEW}:0"]')).to_contain_text("1,200 rows, 80.0 KB")
    expect(page.locator("path.wire")).to_have_count(6)
    expect(page.locator(".legend")).to_contain_text("table")
    join.click()
    detail = page.get_by_role("region", name="Selected node")
    expect(detail.get_by_role("heading", level=2)).to_have_text("left join on customer_id")
    expect(detail).to_contain_text("51,200 rows, 3.0 MB")
    expect(detail).to_contain_text(WHY)


def test_a_query_over_several_topics_shows_the_rows_of_its_view(console, open_page):
    page = open_page("pipeline")
    page.locator('[data-node="query:q"]').click()
    detail = page.get_by_role("region", name="Selected node")
    expect(detail.get_by_role("table")).to_contain_text("north")


def test_what_an_operator_keeps_and_how_far_it_is_behind_do_not_overlap(console, open_page):
    page = open_page("pipeline")
    join = page.locator(f'[data-node="step:{VIEW}:1"]')
    expect(join).to_contain_text("51.2K rows")
    expect(join.locator(".node-flow.end")).not_to_have_text("")
    kept, behind = (each.bounding_box() for each in join.locator(".node-flow").all())
    assert kept["x"] + kept["width"] < behind["x"], join.text_content()
