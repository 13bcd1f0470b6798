"""Marks against a model: a query, its rebuilds, partitions that are read apart, deliverers that die.

The model writes as queries do: sources rise, rows go to any partition, a rebuild begins at
the start again. The reader handles partitions in any interleaving and may lose everything
since it last saved. Whatever happens: every source is delivered; never twice, unless what
was done was not saved; and once all is read, nothing is kept one by one.
"""

import json
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.hooks.log.marks import Marks
from headrace.records import SourceRecord


@dataclass
class Reader:
    marks: Marks = field(default_factory=Marks)
    positions: dict[int, int] = field(default_factory=dict)

    def copy(self):
        return Reader(Marks.from_json(json.loads(json.dumps(self.marks.to_json()))), dict(self.positions))


class Deliveries(RuleBasedStateMachine):
    @initialize(partitions=st.integers(1, 4), sources=st.integers(1, 2))
    def begin(self, partitions, sources):
        self.topic = [[] for _ in range(partitions)]
        self.next = [0] * sources  # of the query that runs
        self.end = [0] * sources  # of the source itself
        self.written = set()
        self.delivered = Counter()
        self.reader = Reader()
        self.saved = self.reader.copy()
        self.unsaved = Counter()
        self.lost = Counter()
        self.asked = None

    @rule(data=st.data())
    def a_query_writes_a_batch(self, data):
        """Some sources, some of which the filter left out, each as one row or two, anywhere."""
        for partition in range(len(self.next)):
            for _ in range(data.draw(st.integers(0, 6))):
                offset = self.next[partition]
                self.next[partition] += 1
                self.end[partition] = max(self.end[partition], self.next[partition])
                for row in range((offset * 7 + partition) % 3):
                    source = SourceRecord("orders", partition, offset, row)
                    self.written.add(source)
                    data.draw(st.sampled_from(self.topic)).append(source)

    @rule()
    def a_rebuild_begins(self):
        self.next = [0] * len(self.next)

    @rule(data=st.data())
    def a_partition_is_read_on(self, data):
        partition = data.draw(st.integers(0, len(self.topic) - 1))
        self.read(partition, data.draw(st.integers(1, 8)))

    def read(self, partition, most):
        start = self.reader.positions.get(partition, 0)
        for source in self.topic[partition][start : start + most]:
            if not self.reader.marks.is_done(source):
                self.delivered[source] += 1
                self.unsaved[source] += 1
            self.reader.marks.add(partition, source)
            self.reader.positions[partition] = self.reader.positions.get(partition, 0) + 1

    @rule()
    def ends_are_asked_for(self):
        candidate = self.reader.marks.candidate()
        self.asked = candidate, {index: len(each) for index, each in enumerate(self.topic)}

    @precondition(lambda self: self.asked is not None)
    @rule()
    def the_frontier_moves(self):
        self.reader.marks.advance(*self.asked, self.reader.positions)

    @rule()
    def the_state_is_saved(self):
        self.saved = self.reader.copy()
        self.unsaved.clear()

    @rule()
    def the_deliverer_dies(self):
        self.reader = self.saved.copy()
        self.lost += self.unsaved
        self.unsaved.clear()
        self.asked = None

    @invariant()
    def nothing_is_delivered_twice_but_what_was_not_saved(self):
        if hasattr(self, "delivered"):
            again = self.delivered - Counter(dict.fromkeys(self.delivered, 1))
            assert again <= self.lost, again - self.lost

    def teardown(self):
        if not hasattr(self, "topic"):
            return
        for partition in range(len(self.topic)):
            self.read(partition, 10**6)
        assert set(self.delivered) == self.written
        self.nothing_is_delivered_twice_but_what_was_not_saved()
        self.ends_are_asked_for()
        self.the_frontier_moves()
        assert self.reader.marks.above == 0


Deliveries.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestDeliveries = Deliveries.TestCase


@given(st.integers(0, 50), st.integers(0, 60))
def test_what_was_there_before_the_hook_is_done(end, offset):
    marks = Marks()
    marks.begin(("orders", 0), end)
    assert marks.is_done(SourceRecord("orders", 0, offset)) == (offset < end)
    assert not marks.is_done(SourceRecord("orders", 1, offset))


def test_a_topic_that_was_made_anew_begins_anew():
    marks = Marks()
    marks.begin(("orders", 0), 10)
    marks.begin(("clicks", 0), 10)
    marks.forget("orders")
    assert not marks.is_done(SourceRecord("orders", 0, 3))
    assert marks.is_done(SourceRecord("clicks", 0, 3))


def test_a_backlog_does_not_make_the_marks_grow():
    marks = Marks()
    for offset in range(10_000):
        marks.add(offset % 4, SourceRecord("orders", 0, offset))
        if offset % 100 == 0:
            marks.advance(
                marks.candidate(), dict.fromkeys(range(4), 5_000), dict.fromkeys(range(4), offset // 4)
            )
            assert marks.above < 250
