"""Tasks that write their part of a batch themselves: each part once, whichever attempt writes it."""

import contextlib
import json
import uuid

import pyarrow as pa
import pytest
from reading import read
from topics import create_topic

from headrace import App
from headrace.app.query.sinks import task_sink
from headrace.app.query.sinks.batch_records import BatchRecords
from headrace.app.query.sinks.task_sink import SlotRecords, TaskSink
from headrace.client.topics import TopicSettings
from headrace.errors import FencedError
from headrace.streams.engine import ALL_VIEWS, BlobKind
from headrace.streams.engine.messages import encode_json, encode_table
from headrace.testing.application import plan_for_test

MARK = (ALL_VIEWS, BlobKind.MARK, encode_json({"marks": []}))


def nobody_else() -> None:
    """The application is still ours."""


class Run:
    """A run of the application, until another takes over from it."""

    is_over = False

    def __call__(self):
        if self.is_over:
            raise FencedError("another run has taken over")


def rows(*values, partition=0):
    numbers = list(range(len(values)))
    table = pa.table(
        {
            "id": list(values),
            "_timestamp": pa.array(numbers, pa.timestamp("us", "UTC")),
            "_partition": pa.array([partition] * len(values), pa.int32()),
            "_offset": pa.array(numbers, pa.int64()),
            "_event_time": pa.array(numbers, pa.int64()),
            "_watermark": pa.array(numbers, pa.int64()),
        }
    )
    return 0, BlobKind.ROWS, encode_table(table)


class Tasks:
    """Tasks of one query, each in whichever process; a process is what it has open."""

    def __init__(self, log, monkeypatch):
        self.log, self._monkeypatch = log, monkeypatch
        self.topic, self.name = create_topic(log, 1), uuid.uuid4().hex
        self._processes = {}

    def run(self, process, slot, batch, *messages, owner=nobody_else):
        """What the task passes on."""
        opened = self._processes.setdefault(process, task_sink._Opened())
        self._monkeypatch.setattr(task_sink, "_opened", opened)
        return list(self._sink(owner)(slot, batch, iter(messages)))

    def written(self):
        return [json.loads(each["value"])["id"] for each in read(self.log, self.topic)]

    def close(self):
        for opened in self._processes.values():
            for sink, _ in opened._sinks.values():
                with contextlib.suppress(Exception):
                    sink.close()

    def _sink(self, owner):
        app = App("shop")
        orders = app.stream("orders", schema="id string")
        app.topic(self.topic)(lambda: orders)
        (planned,) = plan_for_test(app, None)
        return TaskSink(
            made=BatchRecords.of("shop", planned, "q", {}),
            records=SlotRecords(
                connection=self.log,
                name=self.name,
                query_id="q",
                topics={self.topic: TopicSettings()},
                require_owner=owner,
            ),
        )


@pytest.fixture
def tasks(log, monkeypatch):
    found = Tasks(log, monkeypatch)
    yield found
    found.close()


def test_the_driver_gets_what_is_no_row(tasks):
    assert tasks.run("a", 0, 0, rows("x", "y"), MARK) == [MARK]
    assert tasks.written() == ["x", "y"]


def test_slots_write_side_by_side_and_a_second_attempt_of_one_writes_nothing(tasks):
    tasks.run("a", 0, 0, rows("a0"))
    tasks.run("b", 1, 0, rows("b0", partition=1))
    assert tasks.run("b", 0, 0, rows("a0"), MARK) == [MARK], "what it passes on is the same again"
    tasks.run("c", 1, 0, rows("b0", partition=1))
    assert sorted(tasks.written()) == ["a0", "b0"]


def test_a_process_that_gets_its_slot_back_goes_on_though_others_had_it_in_between(tasks):
    for batch, process in enumerate("abab"):
        tasks.run(process, 0, batch, rows(f"{process}{batch}"))
    assert tasks.run("a", 0, 3, rows("b3")) == []
    assert tasks.written() == ["a0", "b1", "a2", "b3"]


def test_an_attempt_that_comes_to_itself_after_another_has_gone_on_writes_nothing(tasks):
    tasks.run("late", 0, 0, rows("a0"))
    tasks.run("a", 0, 1, rows("a1"))
    tasks.run("a", 0, 2, rows("a2"))
    tasks.run("late", 0, 1, rows("a1"))
    assert tasks.written() == ["a0", "a1", "a2"]


def test_a_run_that_was_taken_over_from_writes_nothing_more(tasks):
    run = Run()
    tasks.run("old", 0, 0, rows("a0"), owner=run)
    tasks.run("new", 0, 1, rows("a1"))
    run.is_over = True
    with pytest.raises(FencedError, match="another run"):
        tasks.run("old", 0, 2, rows("a2"), owner=run)
    assert tasks.written() == ["a0", "a1"]


def test_a_process_keeps_few_writers_open(tasks):
    for slot in range(6):
        tasks.run("a", slot, 0, rows(f"s{slot}"))
    assert len(tasks._processes["a"]._sinks) == 4
    assert sorted(tasks.written()) == [f"s{slot}" for slot in range(6)]
