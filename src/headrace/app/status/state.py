"""The state that an application keeps: rows, bytes and the oldest entry, by operator, input and bucket.

Read from the checkpoints in its data folder, whether it runs or not; no Spark is needed. Where state is
at a URL, the driver says in `state.json` what its executors have put there.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from headrace.app.status.description import AppDescription, StateDescription
from headrace.json_files import read_json, write_json
from headrace.streams.engine import BucketState, HeldState, InputRows, read_buckets

__all__ = ["FILE", "HeldInput", "OperatorState", "read_state", "write_held"]

FILE = "state.json"
_FEWEST_BUCKETS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldInput:
    """What one bucket of an operator holds of one of its inputs."""

    input: str
    bucket: int
    rows: int
    oldest_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorState:
    """The state of one operator: `node` is its node in the graph, `bytes` what it takes by bucket."""

    query: str
    operator: str
    node: str
    bytes: dict[int, int]
    held: tuple[HeldInput, ...]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.held)

    @property
    def skew(self) -> float | None:
        """How many times the rows of a middling bucket the largest has; None without rows to compare."""
        rows = Counter(dict.fromkeys(self.bytes, 0))
        for each in self.held:
            rows[each.bucket] += each.rows
        if len(rows) < _FEWEST_BUCKETS or not self.rows:
            return None
        return max(rows.values()) / max(median(rows.values()), 1)

    @property
    def oldest_us(self) -> int | None:
        return min((each.oldest_us for each in self.held if each.oldest_us is not None), default=None)


def read_state(data: Path, app: AppDescription) -> list[OperatorState]:
    """The state of every operator that keeps some, as of the newest batch of each bucket."""
    return [found for each in app.states for found in _operators(data, each)]


def write_held(data: Path, held: Mapping[str, Sequence[BucketState]]) -> None:
    """Notes what is kept elsewhere, by the folder in which it would be here."""
    fields = {folder: [asdict(each) for each in buckets] for folder, buckets in held.items()}
    write_json(data / FILE, {"held": fields}, durable=False)


def _read_held(data: Path, folder: str) -> list[BucketState]:
    try:
        found = (read_json(data / FILE) or {"held": {}})["held"].get(folder, [])
        return [_bucket(each) for each in found]
    except (ValueError, KeyError, TypeError, AttributeError):  # of another version, or damaged: for onlookers
        return []


def _bucket(fields: dict[str, Any]) -> BucketState:
    states = tuple(
        HeldState(each["bytes"], tuple(InputRows(**rows) for rows in each["inputs"]))
        for each in fields["states"]
    )
    return BucketState(**{**fields, "states": states})


def _operators(data: Path, described: StateDescription) -> Iterator[OperatorState]:
    buckets = list(read_buckets(data / described.folder)) or _read_held(data, described.folder)
    for number, operator in enumerate(described.operators):
        states = {each.bucket: each.states[number] for each in buckets if number < len(each.states)}
        if not operator.inputs:  # clocks, and the like
            continue
        yield OperatorState(
            query=described.query,
            operator=operator.name,
            node=operator.node,
            bytes={bucket: state.bytes for bucket, state in states.items()},
            held=tuple(
                each for bucket, state in states.items() for each in _inputs(bucket, state, operator.inputs)
            ),
        )


def _inputs(bucket: int, state: HeldState, names: tuple[str, ...]) -> Iterator[HeldInput]:
    whole = " + ".join(names)
    for number, each in enumerate(state.inputs):
        name = names[number] if len(state.inputs) == len(names) else whole
        yield HeldInput(input=name, bucket=bucket, rows=each.rows, oldest_us=each.oldest_us)
