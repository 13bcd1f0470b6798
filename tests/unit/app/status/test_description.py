"""An application's description: its file, and what must not be in it."""

import json
from dataclasses import replace

import pytest

from headrace.app.status.description import (
    AppDescription,
    PipelineEdge,
    PipelineNode,
    StoreDescription,
    StreamDescription,
    ViewDescription,
    read_description,
    write_description,
)
from headrace.errors import ConfigError

VIEW = ViewDescription(
    name="revenue",
    doc="Revenue per minute.",
    kind="tumbling",
    window="tumbling 1 minute",
    key=("region", "window_start"),
    columns={"region": "string", "revenue": "double"},
    query="orders",
    stream="orders",
    topic=None,
    store=StoreDescription(url="sqlite:////data/views.db"),
)
APP = AppDescription(
    app="shop",
    file="/shop.py",
    bootstrap="127.0.0.1:9092",
    streams=(
        StreamDescription(
            topic="orders",
            schema="region string",
            decoder="json",
            event_time=None,
            lateness_us=10_000_000,
            late="drop",
            correct_for_us=0,
            group="shop.orders",
            words="event time the record's time",
        ),
    ),
    views=(VIEW, replace(VIEW, name="large", store=None, topic="large", kind="rows", window=None)),
    dead_topic="shop.dead",
    late_topic="shop.late",
    hooks=(),
    nodes=(PipelineNode(id="topic:orders", kind="topic", name="orders", label="orders"),),
    edges=(PipelineEdge(tail="topic:orders", head="query:orders"),),
)


def test_a_description_reads_back_as_it_was_written(tmp_path):
    assert read_description(tmp_path) is None
    write_description(tmp_path, APP)
    assert read_description(tmp_path) == APP


def test_a_description_of_a_newer_version_or_of_something_else_is_refused_with_a_reason(tmp_path):
    (tmp_path / "app.json").write_text(json.dumps({**APP.to_json(), "format": 99}))
    with pytest.raises(ConfigError, match="newer version"):
        read_description(tmp_path)
    (tmp_path / "app.json").write_text('{"format": 1}')
    with pytest.raises(ConfigError, match="start the application again"):
        read_description(tmp_path)


def test_a_flipped_bit_is_damage_that_is_named_with_what_to_do(tmp_path):
    write_description(tmp_path, APP)
    path = tmp_path / "app.json"
    data = path.read_bytes()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << (position % 8)
        path.write_bytes(flipped)
        try:
            assert read_description(tmp_path) == APP
        except ConfigError as refused:
            assert str(path) in str(refused)
            assert "start the application again" in str(refused)


def test_a_password_comes_from_the_environment_or_is_left_to_the_driver_of_the_database():
    store = StoreDescription(url="postgresql://me@db/shop", password_variable="WORD")
    assert store.openable({"WORD": "a b"}) == "postgresql://me:a%20b@db/shop"
    assert store.openable({}) == "postgresql://me@db/shop"


def test_a_view_in_memory_cannot_be_opened_from_elsewhere():
    with pytest.raises(ConfigError, match="another store"):
        StoreDescription(url="memory://shop").openable({})
