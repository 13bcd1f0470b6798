"""What an application consists of, in `app.json` in its data folder, for other processes.

`headrace run` writes it when it starts, so that the console needs neither Spark nor the
application's own file. It holds no secrets: a store's password stays with the driver, and
the description names the environment variable in which child processes find it. Reading
imports no pyspark; `headrace.app.plan.describe` makes a description from a plan.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.app.status.store_urls import absolute_url, password_variable, with_password, without_password
from headrace.errors import ConfigError
from headrace.json_files import read_json, write_json

__all__ = [
    "AppDescription",
    "OperatorDescription",
    "PipelineEdge",
    "PipelineNode",
    "QueryDescription",
    "StateDescription",
    "StoreDescription",
    "StreamDescription",
    "ViewDescription",
    "describe_store",
    "read_description",
    "write_description",
]

FORMAT = 1
_FILE = "app.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDescription:
    """Where a view is kept.

    `url` has no password; `password_variable` names the environment variable that has
    it, for processes that the driver started. Others rely on what libpq reads itself
    (PGPASSWORD, or a pgpass file).
    """

    url: str
    password_variable: str | None = None

    def openable(self, environment: Mapping[str, str]) -> str:
        """The URL for `open_store`; raises ConfigError if only the driver can open it."""
        if self.url.startswith("memory://"):
            raise ConfigError(
                f"{self.url} is in the memory of the process that writes it; to read the view from "
                "here, keep it in another store (`store=` of the view or the App)"
            )
        password = environment.get(self.password_variable or "")
        return self.url if password is None else with_password(self.url, password)


def describe_store(url: str, folder: Path) -> StoreDescription:
    """A store by its URL, whose path may be relative to `folder`."""
    shown, password = without_password(absolute_url(url, folder))
    return StoreDescription(
        url=shown, password_variable=None if password is None else password_variable(shown)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDescription:
    """A topic that the application reads; `late` is drop or correct."""

    topic: str
    schema: str
    decoder: str
    event_time: str | None
    lateness_us: int
    late: str
    correct_for_us: int
    group: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDescription:
    """A view, or a derived topic.

    `kind` is tumbling, hopping, sliding, session, rows, frame or projection; `window` the window in
    words, None without one. `query` names the query that keeps it, `stream` the topic it
    reads, None where only Spark knows. `topic` is a derived topic's name; one of rows has
    no `store`. `history_us` is how far back a table can be read as it was.
    """

    name: str
    doc: str
    kind: str
    window: str | None
    key: tuple[str, ...]
    columns: Mapping[str, str]
    query: str
    stream: str | None
    topic: str | None
    store: StoreDescription | None
    history_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDescription:
    """A query: the topics that it reads, each with the group of its progress, and those that it writes.

    When a group has come to an offset, everything that the query makes of the records before it is
    on the log. The group is "" where only Spark knows how far the query is. `rows` are the topics
    of one record a row, `asides` those of dead and late records. `folder`, below the data folder,
    has the query's manifest.
    """

    name: str
    folder: str
    reads: Mapping[str, str]
    rows: tuple[str, ...] = ()
    asides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineNode:
    """A node of the graph: `kind` is topic, query, step, window, join, table, group, view or hook."""

    id: str
    kind: str
    name: str
    label: str
    stage: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineEdge:
    """Records go from one node to another."""

    tail: str
    head: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDescription:
    """An operator with state: what people call it, its node, and its inputs; none of a mere clock."""

    name: str
    node: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDescription:
    """Where the state of a query lies below the data folder, and whose it is, in its order."""

    query: str
    folder: str
    operators: tuple[OperatorDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppDescription:
    """An application as it runs, or last ran.

    `entities` has the name of each entity type, and by name the schema and the version of each
    of its commands.
    """

    app: str
    file: str | None
    bootstrap: str
    streams: tuple[StreamDescription, ...]
    views: tuple[ViewDescription, ...]
    dead_topic: str
    late_topic: str
    hooks: tuple[Mapping[str, Any], ...]
    nodes: tuple[PipelineNode, ...]
    edges: tuple[PipelineEdge, ...]
    states: tuple[StateDescription, ...] = ()
    entities: tuple[Mapping[str, Any], ...] = ()
    queries: tuple[QueryDescription, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `from_json`."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "AppDescription":
        """The description that `to_json` was called on."""
        return cls(
            app=data["app"],
            file=data["file"],
            bootstrap=data["bootstrap"],
            streams=tuple(StreamDescription(**each) for each in data["streams"]),
            views=tuple(_view(each) for each in data["views"]),
            dead_topic=data["dead_topic"],
            late_topic=data["late_topic"],
            hooks=tuple(data["hooks"]),
            nodes=tuple(PipelineNode(**each) for each in data["nodes"]),
            edges=tuple(PipelineEdge(**each) for each in data["edges"]),
            states=tuple(_state(each) for each in data.get("states", ())),
            entities=tuple(data.get("entities", ())),
            queries=tuple(_query(each) for each in data.get("queries", ())),
        )


def _state(fields: dict[str, Any]) -> StateDescription:
    operators = [
        OperatorDescription(**{**each, "inputs": tuple(each["inputs"])}) for each in fields["operators"]
    ]
    return StateDescription(**{**fields, "operators": tuple(operators)})


def _query(fields: dict[str, Any]) -> QueryDescription:
    lists = {name: tuple(fields[name]) for name in ("rows", "asides")}
    return QueryDescription(**{**fields, **lists})


def _view(fields: dict[str, Any]) -> ViewDescription:
    store = None if fields["store"] is None else StoreDescription(**fields["store"])
    return ViewDescription(**{**fields, "key": tuple(fields["key"]), "store": store})


def write_description(data: Path, description: AppDescription) -> None:
    """Writes it to the data folder of its run, atomically."""
    write_json(data / _FILE, description.to_json())


def read_description(data: Path) -> AppDescription | None:
    """The application that runs or last ran on this folder; None if none ever did.

    Raises ConfigError if a newer version wrote it, or the file is not what it should be.
    """
    try:
        found = read_json(data / _FILE)
        if found is None:
            return None
        if found["format"] > FORMAT:
            raise ConfigError(
                f"{data / _FILE} was written by a newer version (format {found['format']}; this one reads "
                f"{FORMAT}); use that version of headrace here too"
            )
        return AppDescription.from_json(found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{data / _FILE} is not a description of an application ({type(error).__name__}: {error}); "
            "start the application again, which writes a new one"
        ) from None
