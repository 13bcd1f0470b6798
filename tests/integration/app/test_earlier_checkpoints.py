"""Checkpoints that an earlier version left, by the manifests it wrote: they open, or say what to do."""

import json
from pathlib import Path

import pytest
from earlier.shop import earlier_app

from headrace.app.options import RunOptions
from headrace.app.plan.planner import plan_app
from headrace.app.query.checkpoint.checkpoints import ready_manifests
from headrace.app.query.checkpoint.fit import describe_graph, describe_query, graph_reasons, query_reasons
from headrace.app.query.checkpoint.manifest import Manifest
from headrace.app.query.graphs import ready_graphs
from headrace.app.query.places import graph_folder
from headrace.errors import ConfigError

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]

EARLIER = json.loads((Path(__file__).parent / "earlier" / "manifests.json").read_text())
DATAFLOWS = ("per_region", "regions")


def left_by_an_earlier_version(data, orders="orders"):
    """A data directory with the manifests, and checkpoints that have begun."""
    folders = {name: (graph_folder(data, name), EARLIER[name]) for name in DATAFLOWS}
    folders["orders"] = (RunOptions(data=data).query_folder("orders"), EARLIER[orders])
    for folder, manifest in folders.values():
        (folder / "checkpoint" / "offsets").mkdir(parents=True)
        (folder / "checkpoint" / "offsets" / "0").touch()
        (folder / "manifest.json").write_text(json.dumps(manifest))
    return {name: folder for name, (folder, _) in folders.items()}


def opened(plan, data):
    """The manifests to go on with. No log is asked: nothing begins."""
    streams = ready_manifests(plan, RunOptions(data=data), None, rebuild=False)
    return streams | ready_graphs(plan.graphs, data, None, rebuild=lambda _: False, makers={})


def test_a_checkpoint_of_the_version_before_opens_and_is_described_anew(spark, tmp_path):
    plan = plan_app(earlier_app(), spark)
    folders = left_by_an_earlier_version(tmp_path)
    first = opened(plan, tmp_path)
    assert {name: each.query_id for name, each in first.items()} == {
        name: EARLIER[name]["query_id"] for name in folders
    }
    kept = {name: Manifest.read(folder).query for name, folder in folders.items()}
    assert {each["version"] for each in kept.values()} == {2}
    assert opened(plan_app(earlier_app(), spark), tmp_path) == first
    assert {name: Manifest.read(folder).query for name, folder in folders.items()} == kept


@pytest.mark.parametrize(
    ("change", "reason", "of_dataflow"),
    [
        ({"size": "2 minutes"}, "window was", "window was"),
        ({"least": 2}, "steps was", "where and"),
        ({"limit": 3}, "aggregates was", "limit=3"),
    ],
)
def test_a_checkpoint_of_the_version_before_that_no_longer_fits_says_what_to_do(
    spark, tmp_path, change, reason, of_dataflow
):
    plan = plan_app(earlier_app(**change), spark)
    left_by_an_earlier_version(tmp_path)
    with pytest.raises(ConfigError, match=rf"(?s)view 'per_place': {reason}.*Run it with --rebuild"):
        ready_manifests(plan, RunOptions(data=tmp_path), None, rebuild=False)
    with pytest.raises(ConfigError, match=rf"(?s)'per_region'.*{of_dataflow}.*Run it with --rebuild"):
        ready_graphs(plan.graphs, tmp_path, None, rebuild=lambda _: False, makers={})


def test_a_checkpoint_whose_state_was_kept_otherwise_says_what_to_do(spark, tmp_path):
    left_by_an_earlier_version(tmp_path, orders="orders, format 2")
    with pytest.raises(ConfigError, match=r"(?s)older version \(format 2, now 3\).*Run it with --rebuild"):
        opened(plan_app(earlier_app(), spark), tmp_path)


def test_what_a_newer_version_described_is_refused(spark):
    plan = plan_app(earlier_app(), spark)
    (orders,) = plan.streams
    (reason,) = query_reasons(describe_query(orders) | {"version": 3}, orders)
    assert "newer version (description 3, known is 2)" in reason
    (reason,) = graph_reasons(describe_graph(plan.graphs[0]) | {"version": 3}, plan.graphs[0])
    assert "newer version (description 3, known is 2)" in reason


@pytest.mark.parametrize("change", [{"size": "2 minutes"}, {"least": 2}, {"limit": 3}])
def test_a_change_shows_in_the_description(spark, change):
    before, now = plan_app(earlier_app(), spark), plan_app(earlier_app(**change), spark)
    kept = json.loads(json.dumps([describe_query(before.streams[0]), describe_graph(before.graphs[0])]))
    assert query_reasons(kept[0], before.streams[0]) == graph_reasons(kept[1], before.graphs[0]) == []
    (reason,) = query_reasons(kept[0], now.streams[0])
    assert reason.startswith("view 'per_place': ")
    assert graph_reasons(kept[1], now.graphs[0])
