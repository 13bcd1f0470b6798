"""The graph of an application, as text and as a picture."""

import xml.etree.ElementTree as ElementTree

from headrace.app.drawing import Graph, Line, as_svg, as_text, span

GRAPH = Graph(
    "shop",
    {"orders": "event time placed_at", "clicks": "event time at"},
    (
        Line("orders", ("where a < 3", "tumbling 1 minute"), "revenue", "sqlite"),
        Line("orders", (), "all", "sqlite"),
        Line("orders", ("select b",), "some", "topic some"),
        Line("clicks", ("session, gap 1 hour",), "visits", "sqlite"),
    ),
)


def test_the_tree_has_every_stream_once_and_every_view_under_its_own():
    lines = as_text(GRAPH).splitlines()
    assert lines[0] == "shop"
    assert [line for line in lines if line.startswith("├─ ")] == [
        "├─ orders  event time placed_at",
        "├─ clicks  event time at",
    ]
    assert "│  ├─ where a < 3 → tumbling 1 minute → revenue  (sqlite)" in lines
    assert lines.index("│  └─ session, gap 1 hour → visits  (sqlite)") > lines.index(
        "├─ clicks  event time at"
    )


def test_the_picture_is_well_formed_and_shows_every_name_once_where_it_belongs():
    root = ElementTree.fromstring(as_svg(GRAPH))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("orders") == 1
    assert {"where a < 3", "revenue", "all", "some", "visits", "topic some"} <= set(texts)


def test_spans_are_written_in_the_largest_unit_that_divides_them():
    assert [span(us) for us in (60_000_000, 90_000_000, 7_200_000_000, 250_000, 0)] == [
        "1 minute",
        "90 seconds",
        "2 hours",
        "0.25 seconds",
        "0 seconds",
    ]
