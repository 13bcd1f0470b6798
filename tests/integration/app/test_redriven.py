"""A record that could not be read is sent again once it can, and counts once, also when all is built anew."""

import pytest
from app_runs import catch_up, event, new_topic, options, reflected, rows, send
from pyspark.sql import functions as F  # noqa: N812
from topics import create_topic

from headrace import App, agg, tumbling
from headrace.app.plan.planner import plan_app
from headrace.app.query.checkpoint.checkpoints import side_progress
from headrace.app.query.checkpoint.manifest import Manifest
from headrace.app.verify.command import verified
from headrace.cli.main import run

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]
EXTRA = ", note long"


def counting(topic, store, extra):
    """One view, with a Python function between the stream and its windows."""

    def is_known(place):
        return place is None or not place.startswith("un")

    app = App(f"app-{topic}", store=store)
    events = app.stream(
        topic,
        schema=f"place string, amount double, at long{extra}",
        event_time="at",
        lateness="1 second",
        late="correct",
    )

    @app.view
    def counts():
        known = events.where(F.udf(is_known, "boolean")("place"))
        return known.window(tumbling("10 seconds"), by="place").agg(n=agg.count(), total=agg.sum("amount"))

    return app


def test_it_counts_once_before_and_after_a_rebuild(spark, our_log, tmp_path):
    topic, data, store = new_topic(), tmp_path / "data", f"sqlite:///{tmp_path}/views.db"
    create_topic(our_log, 2, topic)
    noted = {**event(3), "note": "a note is a text, not a number"}
    send(our_log, topic, [event(1), noted, event(2), event(4, "unknown"), event(30)])
    before = counting(topic, store, EXTRA)
    catch_up(before, our_log, data)
    assert [row["n"] for row in rows(store)] == [2]

    # A column that nobody needs is gone, which its checkpoint can follow; the letter is sent again.
    after = counting(topic, store, "")
    again = ["deadletters", "redrive", f"{after.name}.dead", "--bootstrap", our_log.bootstrap_servers]
    assert run(again) == 0
    catch_up(after, our_log, data)
    assert [row["n"] for row in rows(store)] == [3]
    assert reflected(store).counters["dead"] == reflected(store).counters["corrected"] == 1
    assert all(each.is_equal for each in verified(after, options(our_log, data)))

    # Built anew, the old record can be read, and the new one repeats it.
    catch_up(after, our_log, data, rebuild=True)
    assert [row["n"] for row in rows(store)] == [3]
    assert reflected(store).counters == {"on_time": 4, "filtered": 1, "repeated": 1}
    assert all(each.is_equal for each in verified(after, options(our_log, data)))

    # A rebuild of the same code tells no letter twice: those of its predecessor are its own.
    manifest = Manifest.read(data / "queries" / topic)
    progress = side_progress(plan_app(after, spark), options(our_log, data), our_log)[topic]
    assert progress.queries == (manifest.query_id,)
    follower = Manifest.new({}, 8, progress=progress)
    spec = follower.spec(after.streams[topic].spec)
    assert spec.letters_of == (follower.query_id, manifest.query_id)
