"""What `headrace plan` draws of dataflows; nothing runs."""

import pytest

from headrace import App
from headrace.app.plan import plan_app
from headrace.app.plan.graph import graph_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]


def test_dataflows_of_the_same_topics_begin_at_one_place_in_whatever_order_they_name_them(spark):
    app = App("airport")
    flights = app.table("flights", key="flight", schema="flight string, plane long")
    planes = app.table("planes", key="id", schema="id long, model string")
    app.view(name="with_planes")(lambda: flights.join(planes, on={"plane": "id"}))
    app.view(name="grounded")(lambda: planes.join(flights, on={"id": "plane"}, how="anti"))
    graph = graph_of(plan_app(app, spark))
    assert graph.begins() == ("flights + planes",)
    assert [line.view for line in graph.from_begin("flights + planes")[0]] == ["with_planes", "grounded"]
