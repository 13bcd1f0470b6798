"""What a checkpoint was made by, and whether an application still fits it. Pure, but for reading and writing.

A manifest stands beside each query's checkpoint. It names the query, whose id the
stores know, and describes everything that shaped its state. A changed application is
held against it before anything starts:

- it fits: what changed does not touch the state;
- it needs a rebuild: the state cannot be used, the log can; done on request;
- it is refused: going on, or beginning anew, would destroy what a newer version wrote.
"""

import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.app.json_files import read_json, write_json
from headrace.app.planning import PlannedStream, PlannedView
from headrace.errors import ConfigError
from headrace.streams.engine.projection import Select, Step, Where
from headrace.streams.spec import StreamSpec, rows_schema

__all__ = ["FORMAT", "Manifest", "Told", "describe_query", "describe_step", "reasons_to_rebuild"]

FORMAT = 2  # 1 kept the state of buckets in Spark's state store
_FILE = "manifest.json"
# Of the arguments of a Python function Spark also tells the line of the file, and an address in memory.
_TRACE = r"Some\(\[Ljava\.lang\.StackTraceElement;"
_ORIGIN = re.compile(rf",Origin\((?:None,){{7}}{_TRACE}@[0-9a-f]+\),.*?,None\)|(?<={_TRACE})@[0-9a-f]+")
# What of a stream decides how a record is read, or whether it is late.
_STREAM_FIELDS = ("decoder", "event_time", "sent_at", "lateness_us", "max_ahead_us")


@dataclass(frozen=True, slots=True)
class Told:
    """Up to where, by partition, dead and late records are on their topics, and by which queries."""

    offsets: Mapping[str, int] = field(default_factory=dict)
    queries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A query's id, the number of its buckets, and what it computes.

    `begins` are the offsets by partition at which the query began. `told` are such offsets
    too: dead and late records before them are on their topics already, put there by the
    queries that this one replaces, of the very same code; `replaces` are their ids.
    `outputs` are the offsets, by topic and partition, at which its records begin in the
    topics of rows that it makes. `reads` is the query whose records it reads, if that is
    one of the same application.
    """

    query_id: str
    buckets: int
    query: Mapping[str, Any]
    format: int = FORMAT
    told: Mapping[str, int] = field(default_factory=dict)
    replaces: tuple[str, ...] = ()
    begins: Mapping[str, int] = field(default_factory=dict)
    outputs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    reads: str = ""

    @classmethod
    def new(
        cls,
        query: Mapping[str, Any],
        buckets: int,
        *,
        told: "Told | None" = None,
        begins: Mapping[str, int] | None = None,
        outputs: Mapping[str, Mapping[str, int]] | None = None,
        reads: str = "",
    ) -> "Manifest":
        """For a query that begins, under an id that none had before."""
        told = told or Told()
        return cls(
            query_id=uuid.uuid4().hex,
            buckets=buckets,
            query=query,
            told=told.offsets,
            replaces=told.queries,
            begins=begins or {},
            outputs=outputs or {},
            reads=reads,
        )

    def spec(self, declared: StreamSpec, *, is_proof: bool = False) -> StreamSpec:
        """The stream as this query reads it; a proof has given up no record of its own."""
        begins = tuple((int(partition), offset) for partition, offset in sorted(self.begins.items()))
        queries = () if is_proof else (self.query_id, *self.replaces)
        return replace(declared, letters_of=queries, begins=begins)

    @classmethod
    def read(cls, folder: Path) -> "Manifest | None":
        """The folder's manifest, if there is one; raises ConfigError if a newer version wrote it."""
        try:
            fields = read_json(folder / _FILE)
        except ValueError as error:
            raise ConfigError(
                f"{folder / _FILE} cannot be read ({error}); remove the folder to build its views anew"
            ) from None
        if fields is None:
            return None
        if fields["format"] > FORMAT:
            raise ConfigError(
                f"{folder} was written by a newer version (format {fields['format']}, known is {FORMAT}): "
                "use that version, or remove the folder to build its views anew from the log"
            )
        return cls(**{**fields, "replaces": tuple(fields.get("replaces", ()))})

    def write(self, folder: Path) -> None:
        """Writes it durably, whole or not at all."""
        write_json(folder / _FILE, asdict(self))


def describe_query(planned: PlannedStream) -> dict[str, Any]:
    """Everything about a query that shapes its state, in plain values."""
    spec = planned.stream.spec
    fields = {str(field.name): str(field.type) for field in rows_schema(spec)}
    return {
        "stream": {name: getattr(spec, name) for name in _STREAM_FIELDS},
        "fields": fields,
        "views": {each.view.name: _describe_view(each) for each in planned.views},
    }


def reasons_to_rebuild(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What changed that the state cannot follow, in words; empty if the checkpoint fits."""
    return [*_stream_reasons(before, now), *_view_reasons(before["views"], now["views"])]


def _stream_reasons(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in _STREAM_FIELDS:
        if before["stream"][name] != now["stream"][name]:
            yield f"the stream's {name} was {before['stream'][name]!r} and is {now['stream'][name]!r}"
    for name in before["fields"]:
        kinds = before["fields"][name], now["fields"].get(name)
        if kinds[1] is not None and kinds[0] != kinds[1]:
            yield f"column {name!r} was {kinds[0]} and is {kinds[1]}"


def _view_reasons(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(before.keys() - now.keys()):
        yield f"view {name!r} is gone"
    for name in sorted(now.keys() - before.keys()):
        yield f"view {name!r} is new"
    for name in sorted(now.keys() & before.keys()):
        for part in now[name]:
            if before[name].get(part) != now[name][part]:
                yield f"view {name!r}: {part} was {before[name].get(part)!r} and is {now[name][part]!r}"


def _describe_view(planned: PlannedView) -> dict[str, Any]:
    operator = planned.plan.operator
    described: dict[str, Any] = {
        "steps": [describe_step(step) for step in planned.steps],
        "columns": {field.name: str(field.type) for field in planned.schema.columns},
        "key": list(planned.schema.key),
    }
    if operator is not None:
        described |= {
            "window": repr(operator.window),
            "by": list(operator.keys),
            "aggregates": {name: repr(each) for name, each in operator.aggregates},
            "emit": operator.emit,
            "correct_for_us": operator.correct_for_us,
        }
    return described


def describe_step(step: Step) -> str:
    """A step in words; of a user's own function only the name is known."""
    if isinstance(step, Where):
        return f"where {_words(step.condition)}"
    if isinstance(step, Select):
        return "select " + ", ".join(map(_words, step.columns))
    return "with " + ", ".join(f"{name}={_words(column)}" for name, column in step.columns.items())


def _words(column: object) -> str:
    """A column as Spark writes it, without the Column<'…'> around it and where it comes from."""
    return _ORIGIN.sub("", str(column).removeprefix("Column<'").removesuffix("'>"))
