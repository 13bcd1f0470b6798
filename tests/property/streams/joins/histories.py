"""What the judges of joins have in common: random values, sums of changes, restarts."""

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

from headrace.streams.operators import part_of_snapshot
from headrace.streams.operators.operator import STAMPS, WEIGHT, stamp_fields

TEXTS = st.sampled_from(["", "a", "ä", "a longer text than a word", None])
DOUBLES = st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf"), None])
DECIMALS = st.sampled_from([Decimal("0.00"), Decimal("-1.10"), Decimal("12345678901234567.89"), None])
INSTANTS = st.sampled_from([datetime(1969, 7, 20, tzinfo=UTC), datetime(2024, 2, 29, 1, 2, 3, 4, UTC), None])
FLAGS = st.sampled_from([True, False, None])
NUMBERS = st.sampled_from([0, 1, -7, 1 << 62, None])


def value(each):
    """A value as text that tells apart what differs, and has one form of NaN."""
    return repr(each)


def rows_of(table, *, stamps=False):
    """The rows of a table, as texts, with the sum of their weights; none where it is zero."""
    total = Counter()
    if table is None:
        return total
    names = [name for name in table.column_names if name != WEIGHT and (stamps or name not in STAMPS)]
    columns = [[value(each) for each in table[name].to_pylist()] for name in names]
    weights = table[WEIGHT].to_pylist() if WEIGHT in table.column_names else [1] * table.num_rows
    for row, weight in zip(zip(*columns, strict=True), weights, strict=True):
        total[row] += weight
    return Counter({row: weight for row, weight in total.items() if weight})


def add(total, more):
    """Adds changes to a sum of changes."""
    for row, weight in more.items():
        total[row] += weight
        if not total[row]:
            del total[row]


class Restarted:
    """A state that is lost at some steps and made again from a snapshot and the deltas behind it."""

    def __init__(self, operator, schemas):
        self.operator, self.schemas = operator, schemas
        self.state = operator.new_state(schemas)
        self.stored = []

    def advance(self, arrived, watermarks, restart):
        """One step; then nothing, a snapshot, or a restart from what is stored, or from parts of it."""
        step = self.state.advance(arrived, watermarks)
        self.stored.append(step.delta)
        if restart == "snapshot":
            self.stored = [self.state.snapshot()]
        if restart == "rescale":
            self.stored = parts(self.operator, self.state)
        if restart in ("restart", "rescale"):
            self.state = self.operator.new_state(self.schemas)
            for stored in self.stored:
                self.state.replay(stored)
        return step


RESTARTS = st.sampled_from([None, None, "snapshot", "restart", "rescale"])


def parts(operator, state, count=3):
    """What a state holds, as the snapshots of so many buckets."""
    stored = state.snapshot()
    return [part_of_snapshot(stored, operator.inputs, bucket, count) for bucket in range(count)]


def table_of(rows, schema):
    """Rows that are dictionaries, as a table."""
    return pa.Table.from_pylist(rows, schema=schema)


STREAM_END = (1 << 63) - 1
NEVER = -(1 << 63)


@st.composite
def logs(draw, rows, partitions=2, most=10, last_us=40):
    """The log of each partition: rows in the order of offsets, with the stamps that a reader gives them.

    A partition's watermark is some time behind the greatest event time before; it has none before
    its first row.
    """
    behind = draw(st.sampled_from([0, 3, 10]))
    found = []
    for partition in range(partitions):
        watermark, log = None, []
        for offset in range(draw(st.integers(0, most))):
            time = draw(st.integers(0, last_us))
            stamps = {
                "_partition": partition,
                "_offset": offset,
                "_event_time": time,
                "_watermark": watermark,
            }
            log.append({**draw(rows), **stamps, "_weight": 1})
            watermark = max(NEVER if watermark is None else watermark, time - behind)
        found.append((log, behind))
    return found


@st.composite
def readings(draw, inputs):
    """One way to read inputs of several partitions: for each batch, its rows and the watermarks behind it.

    A partition that has not begun holds its input's watermark back: none is idle. The last
    batch is empty, with watermarks behind everything.
    """
    places, batches = [[0 for _ in partitions] for partitions in inputs], []
    while not _is_read(inputs, places):
        arrived, watermarks = [], []
        for partitions, own in zip(inputs, places, strict=True):
            rows, passed = [], []
            for each, (log, behind) in enumerate(partitions):
                begin, own[each] = (
                    own[each],
                    min(len(log), own[each] + draw(st.sampled_from([0, 1, 2, 5, 9]))),
                )
                rows += log[begin : own[each]]
                passed.append(max((row["_event_time"] - behind for row in log[: own[each]]), default=NEVER))
            arrived.append(rows)
            watermarks.append(min(passed))
        batches.append((arrived, watermarks))
    return [*batches, ([[] for _ in inputs], [STREAM_END] * len(inputs))]


def long_logs(chance, rows, *, partitions=3, most=700, last_us=6_000, behind=40):
    """Logs as `logs` draws them, longer: times go on, more or less out of order, late ones among them."""
    found = []
    for partition in range(partitions):
        watermark, log = None, []
        for offset in range(most):
            time = offset * last_us // most - int(chance.exponential(25))
            stamps = dict(zip(STAMPS, (partition, offset, time, watermark, 1), strict=True))
            log.append({**rows(chance), **stamps})
            watermark = max(NEVER if watermark is None else watermark, time - behind)
        found.append((log, behind))
    return found


def long_reading(chance, inputs, rows=12):
    """A reading of long logs in many batches, one input or the other ahead."""
    places, batches = [[0 for _ in partitions] for partitions in inputs], []
    while not _is_read(inputs, places):
        arrived, watermarks = [], []
        for partitions, own in zip(inputs, places, strict=True):
            taken, passed, more = [], [], int(chance.integers(0, 2 * rows))
            for each, (log, behind) in enumerate(partitions):
                begin = own[each]
                own[each] = min(len(log), begin + int(chance.integers(0, more + 1)))
                taken += log[begin : own[each]]
                last = max((row["_event_time"] for row in log[: own[each]]), default=None)
                passed.append(NEVER if last is None else last - behind)
            arrived.append(taken)
            watermarks.append(min(passed))
        batches.append((arrived, watermarks))
    return [*batches, ([[] for _ in inputs], [STREAM_END] * len(inputs))]


def long_restarts(chance, batches):
    return [[None, "snapshot", "restart"][int(chance.integers(0, 30)) % 13 % 3] for _ in batches]


def _is_read(inputs, places):
    return all(
        at == len(log)
        for partitions, own in zip(inputs, places, strict=True)
        for (log, _), at in zip(partitions, own, strict=True)
    )


def run(operator, schemas, batches, restarts):
    """All that came out, summed, with stamps; what was counted; what was put aside. By input, where it is."""
    subject = Restarted(operator, schemas)
    stamped = [pa.schema([*schema, *stamp_fields()]) for schema in schemas]
    total, counts, aside = Counter(), Counter(), Counter()
    for (arrived, watermarks), restart in zip(batches, restarts, strict=True):
        tables = [table_of(rows, schema) for rows, schema in zip(arrived, stamped, strict=True)]
        step = subject.advance([each if each.num_rows else None for each in tables], watermarks, restart)
        add(total, rows_of(step.changes, stamps=True))
        for number, of_input in step.counts.items():
            counts.update({(number, name): count for name, count in of_input.items()})
        for number, table in step.aside.items():
            aside.update((number, *row) for row in zip(*(table[n].to_pylist() for n in ASIDE), strict=True))
    return total, counts, aside


ASIDE = ("_partition", "_offset", "_reason")
