"""Graphs of several operators by chance equal DuckDB's answer to the same SQL, through the product's stages.

Rows of tables that come, change and go, and rows of streams; any cut into batches; workers that are
lost, batches that are run again, and states that are spread over another number of buckets. Tables
equal the answer at every commit, what depends on event time at the end. A seed that ever failed is
kept in FAILED.
"""

import random
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from tests.property.streams.graphs.random_graphs import STREAM, TABLE, Maker
from tests.property.streams.joins.histories import add, rows_of, table_of

from headrace.streams.dataflow.shuffles import are_shuffled
from headrace.streams.dataflow.stage import advance_graph_bucket
from headrace.streams.dataflow.step import StageBatch, StageOperators, producer_messages
from headrace.streams.engine.messages import ALL_VIEWS, BlobKind, Message, decode_table, encode_json
from headrace.streams.engine.state.files import BucketFiles
from headrace.streams.engine.state.rescaling import rescale
from headrace.streams.event_time import Mark, PartitionTime
from headrace.streams.operators.operator import stamp_fields

FAILED = ()
END_US = 1 << 60


class Run:
    """The stages of a graph over files, with workers that come and go."""

    def __init__(self, graph, folder):
        self.graph, self.folder = graph, folder
        self.number, self.worker = 0, uuid.uuid4().hex

    def batch(self, sources, times, *, again=False):
        """What the view gets of one batch; with `again`, of its second attempt, on another worker."""
        found = self._attempt(sources, times)
        if again:
            self.restart()
            found = self._attempt(sources, times)
        self.number += 1
        return found

    def restart(self):
        self.worker = uuid.uuid4().hex

    def rescale(self, buckets):
        """Goes on with another number of buckets, from the states that there are."""
        graph, folder = self.graph, self.folder.with_name(f"{self.folder.name}.{buckets}.{self.number}")
        for stage, places in enumerate(graph.stages):
            states = StageOperators(graph, stage).new_states
            keys = [None, *(graph.nodes[place].operator.inputs for place in places)]
            old = [BucketFiles(self.folder / str(stage), each, "query") for each in range(graph.buckets)]
            new = [BucketFiles(folder / str(stage), each, "query") for each in range(buckets)]
            assert list(rescale(old, new, self.number - 1, states, keys, 0)) == list(range(buckets))
        self.graph, self.folder = replace(graph, buckets=buckets), folder
        self.restart()

    def _attempt(self, sources, times):
        graph = self.graph
        messages = [
            Message(bucket, ALL_VIEWS, BlobKind.MARK, encode_json(self._mark(number, time).to_json()))
            for number, time in enumerate(times)
            for bucket in range(graph.buckets)
        ]
        for number, rows in enumerate(sources):
            if rows.num_rows:
                messages += producer_messages(graph, number, number % graph.buckets, rows)
        for stage, is_shuffled in enumerate(are_shuffled(graph)):
            if is_shuffled:
                arrived = {bucket: [] for bucket in range(graph.buckets)}
                for each in messages:
                    arrived[each.bucket].append(each)
            arrived = {bucket: self._bucket(stage, bucket, found) for bucket, found in arrived.items()}
            messages = [each for made in arrived.values() for each in made]
        tables = [decode_table(blob) for _, _, kind, blob in messages if kind is BlobKind.ROWS]
        return pa.concat_tables(tables) if tables else None

    def _bucket(self, stage, bucket, messages):
        batch = StageBatch.of(self.graph, stage, bucket, messages)
        log = BucketFiles(self.folder / str(stage), bucket, "query")
        return advance_graph_bucket(batch, self.worker, bucket, log, self.number)

    def _mark(self, number, time):
        spec = self.graph.sources[number].spec
        return Mark(partition=0, next=0, time=time, times={}, lateness_us=0, topic=spec.topic)


class Topics:
    """Two tables and two streams by chance: what comes in a batch, and what there is after it."""

    def __init__(self, chance):
        self.chance = chance
        self.tables, self.streams = ({}, {}), ([], [])
        self.offset = 0

    def batch(self):
        return [self._upserts(0), self._upserts(1), self._events(0), self._events(1)]

    def times(self, *, is_end):
        declared = END_US if is_end else None
        return [PartitionTime(1, declared)] * 2 + [
            PartitionTime(rows[-1]["_t"] if rows else 0, declared) for rows in self.streams
        ]

    def register(self, database):
        for number in (0, 1):
            schema = pa.schema(list(TABLE)[:-1])
            database.register(f"t{number}", table_of(list(self.tables[number].values()), schema))
            schema = pa.schema([*STREAM, ("_t", pa.int64()), ("_o", pa.int64())])
            database.register(f"s{number}", table_of(self.streams[number], schema))

    def _value(self):
        return self.chance.choice((None, 0, 1, 2, 3, 4))

    def _upserts(self, number):
        rows = []
        for _ in range(self.chance.randrange(0, 6)):
            key = self.chance.randrange(0, 5)
            row = {"id": key, "g": self._value(), "v": self._value()}
            deleted = self.chance.random() < 0.3
            self.tables[number].pop(key, None)
            if not deleted:
                self.tables[number][key] = row
            rows.append({**row, "_deleted": deleted, **self._stamps(key % 2, 1, None)})
        return table_of(rows, pa.schema([*TABLE, *stamp_fields()]))

    def _events(self, number):
        rows, stream = [], self.streams[number]
        for _ in range(self.chance.randrange(0, 5)):
            before = stream[-1]["_t"] if stream else None
            time = (before or 0) + self.chance.choice((0, 1, 3, 9))
            row = {"g": self._value(), "v": self._value()}
            stamps = self._stamps(0, time, before)
            stream.append({**row, "_t": time, "_o": stamps["_offset"]})
            rows.append({**row, **stamps})
        return table_of(rows, pa.schema([*STREAM, *stamp_fields()]))

    def _stamps(self, partition, time, watermark):
        self.offset += 1
        stamps = {"_partition": partition, "_offset": self.offset, "_event_time": time}
        return {**stamps, "_watermark": watermark, "_weight": 1}


def check(seed, operators):
    chance = random.Random(seed)
    graph, last = Maker(chance).graph(operators)
    database, topics, total = duckdb.connect(), Topics(chance), rows_of(None)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(graph, Path(folder) / "state")
        batches = chance.randrange(2, 6)
        for number in range(batches):
            is_end = number == batches - 1
            changes = run.batch(topics.batch(), topics.times(is_end=is_end), again=chance.random() < 0.2)
            if chance.random() < 0.3:
                run.restart()
            if chance.random() < 0.4:
                run.rescale(chance.choice((1, 2, 3, 5, 8, 32)))
            add(total, rows_of(changes))
            if is_end or not last.at_the_end:
                topics.register(database)
                answer = database.sql(last.sql).to_arrow_table()
                wanted = pa.table(
                    [answer[each.name].cast(each.type) for each in last.schema], schema=last.schema
                )
                told = f"seed {seed}, batch {number}: {[node.name for node in graph.nodes]}\n{last.sql}"
                assert total == rows_of(wanted), told


@pytest.mark.parametrize("seed", [*range(20), *FAILED])
def test_a_graph_by_chance_is_what_sql_makes_of_its_topics(seed):
    check(seed, operators=3 + seed % 4)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(950, 1600, 50))
def test_hundreds_of_graphs_by_chance_are_what_sql_makes_of_their_topics(first):
    for seed in range(first, first + 50):
        check(seed, operators=3 + seed % 8)
