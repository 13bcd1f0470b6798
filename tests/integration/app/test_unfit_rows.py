"""Rows that a view's store cannot keep stop nothing: they become dead letters, and the others are shown."""

import json

import pytest
from app_runs import catch_up, headers_of, new_topic, read, send

from headrace import App, agg
from headrace.views import open_store

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]

CAUSE = "PostgreSQL's text cannot hold U+0000"


def notes(topic, store):
    """The same notes in three views, by the ways that rows take to a store."""
    app = App(f"app-{topic}", store=store)
    stream = app.stream(topic, schema="id string, note string, at long", event_time="at")
    app.view(name="rows", key="id")(lambda: stream.select("id", "note"))
    app.view(name="groups")(lambda: stream.group_by("note").agg(n=agg.count()))
    app.view(name="frames", key="id")(lambda: stream.df.select("id", "note"))
    return app


@pytest.mark.parametrize("sinks", ["driver", "executors"])
def test_a_row_that_postgresql_cannot_keep_becomes_a_dead_letter(spark, our_log, postgres, tmp_path, sinks):
    topic, url = new_topic(), postgres.url()
    app, data = notes(topic, url), tmp_path / "data"
    store = open_store(url)

    def shown(view, column):
        return sorted(each[column] for each in store.read(view).to_pylist())

    first = [{"id": each, "note": f"note {each}", "at": 1_700_000_000_000} for each in "abc"]
    for each in first:
        send(our_log, topic, [each], key=each["id"].encode())
    catch_up(app, our_log, data, sinks=sinks)
    for view in ("rows", "frames"):
        assert shown(view, "id") == ["a", "b", "c"]
    assert shown("groups", "note") == ["note a", "note b", "note c"]

    odd = [{**first[0], "note": "not\0e", "at": 1_700_000_001_000}, {**first[0], "id": "d" * 3_000}]
    odd[1]["note"] = "large key"
    for each in odd:
        send(our_log, topic, [each], key=each["id"].encode())
    catch_up(app, our_log, data, sinks=sinks)
    for view in ("rows", "frames"):
        assert shown(view, "id") == ["b", "c"], "no row is better than an outdated one"
    assert shown("groups", "note") == ["large key", "note a", "note b", "note c"]
    letters = [(json.loads(each["value"]), headers_of(each)) for each in read(our_log, f"{app.name}.dead")]
    found = sorted(
        (
            told["headrace.dead.view"].decode(),
            told["headrace.dead.reason"].decode(),
            next(iter(key.values()))[:1],
        )
        for key, told in letters
    )
    large = "the key has more than 2,600 bytes, which PostgreSQL cannot index"
    assert found == [
        ("frames", f"note: {CAUSE}", "a"),
        ("frames", large, "d"),
        ("groups", f"note: {CAUSE}", "n"),
        ("rows", f"note: {CAUSE}", "a"),
        ("rows", large, "d"),
    ]
    send(our_log, topic, [{**first[0], "note": "well again", "at": 1_700_000_002_000}], key=b"a")
    catch_up(app, our_log, data, sinks=sinks)
    for view in ("rows", "frames"):
        assert shown(view, "note") == ["note b", "note c", "well again"]
    assert shown("groups", "note") == ["large key", "note a", "note b", "note c", "well again"]
    assert len(read(our_log, f"{app.name}.dead")) == len(letters), "each once"
    store.close()
