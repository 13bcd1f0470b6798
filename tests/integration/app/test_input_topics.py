"""What the topics of tables keep, and what is said of those that lose rows."""

import uuid

import pytest
from topics import create_topic

from headrace import App
from headrace.app.plan.planner import AppPlan
from headrace.app.run.input_topics import create_app_topics, tables_losing_rows
from headrace.client import admin
from headrace.client.topics import Log, alter_configs, named_configs

KEPT = ("cleanup.policy", "retention.ms", "retention.bytes")


@pytest.fixture
def app():
    return App(f"app-{uuid.uuid4().hex[:12]}")


def declared_table(app, topic=None):
    topic = topic or f"t-{uuid.uuid4().hex[:12]}"
    app.table(topic, key="id", schema="id long, name string")
    return topic


def create(app, log):
    create_app_topics(AppPlan(app=app, streams=(), frames=()), log)


def alter(log, topic, changed):
    alter_configs(Log(admin(log), log.bootstrap_servers), topic, changed, ())


def configs(log, topic):
    return named_configs(log, [topic], KEPT)[topic]


def test_a_topic_that_is_created_for_a_table_keeps_every_record(our_log, app):
    topic = declared_table(app)
    create(app, our_log)
    assert configs(our_log, topic) == dict(zip(KEPT, ("delete", "-1", "-1"), strict=True))
    assert list(tables_losing_rows(app, our_log)) == []


def test_a_topic_that_is_created_for_a_stream_has_the_retention_of_the_log(our_log, app):
    topic = f"t-{uuid.uuid4().hex[:12]}"
    app.stream(topic, schema="id long")
    create(app, our_log)
    assert configs(our_log, topic)["retention.ms"] == str(7 * 24 * 3600 * 1000)
    assert list(tables_losing_rows(app, our_log)) == []


def test_a_table_whose_topic_removes_old_rows_is_named_with_what_to_do(our_log, app):
    topic = declared_table(app, create_topic(our_log))
    create(app, our_log)  # leaves a topic alone that is there
    (warning,) = tables_losing_rows(app, our_log)
    assert f"table {topic} loses rows" in warning
    assert "retention.ms=604800000" in warning
    assert f"headrace topics alter {topic} --config cleanup.policy=compact" in warning


@pytest.mark.parametrize(
    "kept",
    [{"cleanup.policy": "compact"}, {"retention.ms": "-1", "retention.bytes": "-1"}],
    ids=["compacted", "unbounded"],
)
def test_what_the_warning_advises_silences_it(our_log, app, kept):
    topic = declared_table(app, create_topic(our_log))
    alter(our_log, topic, kept)
    assert list(tables_losing_rows(app, our_log)) == []


def test_a_limit_by_size_alone_is_named_alone(our_log, app):
    topic = declared_table(app, create_topic(our_log))
    alter(our_log, topic, {"retention.ms": "-1", "retention.bytes": "1000000"})
    (warning,) = tables_losing_rows(app, our_log)
    assert "removes records by retention.bytes=1000000, " in warning
