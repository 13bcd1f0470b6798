"""The graph of an application, as text and as a picture."""

import xml.etree.ElementTree as ElementTree

from headrace.app.plan.graph import AppGraph, HookLine, ViewLine, as_text, span
from headrace.app.plan.picture import as_svg

GRAPH = AppGraph(
    "shop",
    {"orders": "event time placed_at", "clicks": "event time at"},
    (
        ViewLine("orders", ("where a < 3", "tumbling 1 minute"), "revenue", "sqlite"),
        ViewLine("orders", (), "all", "sqlite"),
        ViewLine("orders", ("select b",), "some", "topic some", "some"),
        ViewLine("clicks", ("session, gap 1 hour",), "visits", "sqlite"),
    ),
    (
        HookLine("some.webhook", "some", "webhook to env:URL"),
        HookLine("some.email", "some", "email to a@b.c"),
        HookLine("clicks.webhook", "clicks", "webhook to env:CLICKS"),
        HookLine("other.email", "other", "email to d@e.f"),
    ),
)


def test_the_tree_has_every_stream_once_and_every_view_under_its_own():
    lines = as_text(GRAPH).splitlines()
    assert lines[0] == "shop"
    assert [line for line in lines if line.startswith("├─ ")] == [
        "├─ orders  event time placed_at",
        "├─ clicks  event time at",
        "├─ other",
    ]
    assert "│  ├─ where a < 3 → tumbling 1 minute → revenue  (sqlite)" in lines
    assert lines.index("│  ├─ session, gap 1 hour → visits  (sqlite)") > lines.index(
        "├─ clicks  event time at"
    )


def test_the_tree_has_those_who_are_told_under_the_topic_that_they_follow():
    assert as_text(GRAPH).splitlines()[4:] == [
        "│  └─ select b → some  (topic some)",
        "│     ├─ webhook to env:URL",
        "│     └─ email to a@b.c",
        "├─ clicks  event time at",
        "│  ├─ session, gap 1 hour → visits  (sqlite)",
        "│  └─ webhook to env:CLICKS",
        "├─ other",
        "│  └─ email to d@e.f",
    ]


def test_those_who_are_told_of_a_topic_that_is_written_and_read_stand_where_it_is_written():
    lines = (ViewLine("orders", (), "some", "topic some", "some"), ViewLine("some", (), "view", "sqlite"))
    graph = AppGraph("shop", {}, lines, (HookLine("some.email", "some", "email to a@b.c"),))
    assert as_text(graph).splitlines()[2:4] == ["│  └─ some  (topic some)", "│     └─ email to a@b.c"]
    assert as_text(graph).count("email") == as_svg(graph).count("email") == 1


def test_the_picture_is_well_formed_and_shows_every_name_once_where_it_belongs():
    root = ElementTree.fromstring(as_svg(GRAPH))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("orders") == texts.count("topic some") == 1
    assert {"where a < 3", "revenue", "all", "some", "visits", "topic some"} <= set(texts)
    assert [text for text in texts if " to " in str(text)] == [hook.words for hook in GRAPH.hooks]


def test_a_graph_of_nothing_is_still_a_picture():
    assert ElementTree.fromstring(as_svg(AppGraph("shop", {}, ()))).attrib["viewBox"] == "0 0 48 24"


def test_spans_are_written_in_the_largest_unit_that_divides_them():
    assert [span(us) for us in (60_000_000, 90_000_000, 7_200_000_000, 250_000, 0)] == [
        "1 minute",
        "90 seconds",
        "2 hours",
        "0.25 seconds",
        "0 seconds",
    ]
