"""Which records of a derived topic its second stage reads, after rebuilds and starts that were cut off."""

import shutil
import time

import pytest
from app_runs import TIMEOUT_S, new_topic, options
from confluent_kafka import KafkaException

from headrace import App
from headrace.app.plan.planner import AppPlan
from headrace.app.plan.topology import makers_first
from headrace.app.query.checkpoint.checkpoints import ready_manifests
from headrace.app.query.checkpoint.derived_topics import record_sink_name
from headrace.app.run.input_topics import create_app_topics
from headrace.client import LATEST, RawFetcher, producer
from headrace.client.write import OutputRecord, RecordSink
from headrace.testing.application import plan_for_test


class Stages:
    """Two queries without Spark: what they begin with, and what they would have written and checkpointed."""

    def __init__(self, log, data):
        self.log, self.options = log, options(log, data)
        self.first, self.second = new_topic(), new_topic()
        app = App(f"app-{self.first}")
        copies = app.stream(self.second, schema="name string")
        app.view(name="read")(lambda: copies)
        events = app.stream(self.first, schema="name string")
        app.topic(self.second)(lambda: events)
        self.plan = AppPlan(app=app, streams=plan_for_test(app, None), frames=())
        create_app_topics(self.plan, log)
        self.written = 0

    def begin(self, *, rebuild=False):
        """The manifests of the first and of the second stage."""
        found = ready_manifests(self.plan, self.options, self.log, rebuild=rebuild)
        return found[self.first], found[self.second]

    def run(self, *, rebuild=False):
        """Begins, writes a batch of three records, and has a checkpoint; (first, second) as they began."""
        first, second = self.begin(rebuild=rebuild)
        sink = RecordSink(self.log, self.sink_name, first.query_id)
        assert sink.write(0, iter(self.records(3)))
        sink.close()
        self.written += 4  # and a marker, which may be a moment behind
        deadline = time.monotonic() + TIMEOUT_S
        while self.ends()["0"] < self.written:
            assert time.monotonic() < deadline, "the transaction did not end"
        for name in (self.first, self.second):
            offsets = self.folder(name) / "checkpoint" / "offsets"
            offsets.mkdir(parents=True, exist_ok=True)
            (offsets / "0").touch()
        return first, second

    def records(self, count):
        return [OutputRecord(self.second, None, b"{}", partition=0) for _ in range(count)]

    @property
    def sink_name(self):
        return record_sink_name(self.plan.app.name, makers_first(self.plan.streams)[0])

    def folder(self, name):
        return self.options.query_folder(name)

    def ends(self):
        with RawFetcher(self.log) as fetcher:
            return {str(each): end for each, end in fetcher.offsets(self.second, LATEST).items()}


@pytest.fixture
def stages(our_log, tmp_path):
    return Stages(our_log, tmp_path / "data")


def test_the_first_build_is_read_from_its_beginning_and_gone_on_with(stages):
    first, second = stages.run()
    assert set(second.begins.values()) == {0} and second.reads == first.query_id
    again = stages.begin()
    assert [each.query_id for each in again] == [first.query_id, second.query_id]


def test_after_a_rebuild_the_second_stage_reads_the_new_build_alone(stages):
    stages.run()
    ends = stages.ends()
    assert ends["0"] == 4
    first, second = stages.run(rebuild=True)
    assert second.begins == ends == first.outputs[stages.second]
    assert [each.query_id for each in stages.begin()] == [first.query_id, second.query_id]


def test_when_the_first_stage_begins_anew_by_itself_so_does_the_second(stages):
    _, old = stages.run()
    shutil.rmtree(stages.folder(stages.first) / "checkpoint")
    ends = stages.ends()
    first, second = stages.begin()
    assert (second.reads, second.begins) == (first.query_id, ends)
    assert second.query_id != old.query_id


@pytest.mark.parametrize(
    "left", ["the first stage's folder is gone", "both are", "the first stage has its new manifest"]
)
def test_a_rebuild_that_was_cut_off_is_carried_out_by_the_next_start(stages, tmp_path, left):
    _, old = stages.run()
    kept = shutil.copytree(stages.folder(stages.second), tmp_path / "kept")
    ends = stages.ends()
    if left == "the first stage has its new manifest":
        stages.begin(rebuild=True)
        shutil.rmtree(stages.folder(stages.second))
        shutil.copytree(kept, stages.folder(stages.second))
    else:
        shutil.rmtree(stages.folder(stages.first))
        if left == "both are":
            shutil.rmtree(stages.folder(stages.second))
    first, second = stages.begin()
    assert (second.reads, second.begins) == (first.query_id, ends)
    assert second.query_id != old.query_id


def test_a_second_stage_that_lost_its_own_checkpoint_reads_the_build_that_is_there(stages):
    stages.run()
    first, _ = stages.run(rebuild=True)
    begin = first.outputs[stages.second]
    shutil.rmtree(stages.folder(stages.second))
    again, second = stages.begin()
    assert (again.query_id, second.begins) == (first.query_id, begin)


def test_what_an_older_driver_had_open_is_behind_no_new_build(stages):
    stages.run()
    older = producer(stages.log, transactional_id=f"headrace-{stages.sink_name}")
    older.init_transactions(30)
    older.begin_transaction()
    for record in stages.records(5):
        older.produce(record.topic, record.value, partition=0)
    assert older.flush(30) == 0
    first, second = stages.begin(rebuild=True)
    with pytest.raises(KafkaException):
        older.commit_transaction(30)
    assert second.begins == first.outputs[stages.second] == stages.ends()
