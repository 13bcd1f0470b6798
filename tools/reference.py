"""Writes docs/reference/python.md from the code: public names, signatures and docstrings.

    .venv/bin/python -m tools.reference

A test generates the page again and compares. What is listed here is public: a class with
the methods that are for users, or all of them.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace
from headrace import client, derived, errors, outbox, personal, sourcing, streams, testing, views
from headrace.app import Aggregation, Grouped, Operations, Relation, Stream, Table, Windowed
from headrace.views import ViewStore

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "python.md"
COMMAND = ".venv/bin/python -m tools.reference"

_WIDTH = 100
_HEAD = (
    "# Python API\n\n"
    "Every public name, its arguments and what it promises.\n"
    f"`{COMMAND}` generates this page from the code, and a test checks that it is up to date.\n"
    "The [guides](../README.md#guides) show how to use these names together.\n"
    "Commands are under [command line](cli.md), settings under [settings](settings.md), and the\n"
    "[HTTP API](http.md) is also available as OpenAPI, at `/openapi.json` of a running console.\n\n"
    "Names that are not listed here may change without notice. Version 0.1 is in development:\n"
    "names that are listed may change too, and the [changelog](../../CHANGELOG.md) says so.\n"
)


@dataclass(frozen=True, slots=True)
class Constant:
    """A value without a docstring of its own."""

    doc: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A name and the object behind it; `methods` are those shown, all public ones where it is None.

    `own` are arguments of a class that are not for users.
    """

    name: str
    what: Any
    methods: tuple[str, ...] | None = None
    own: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chapter:
    """A module that users import from."""

    module: str
    intro: str
    entries: tuple[Entry, ...]


CHAPTERS = (
    Chapter(
        "headrace",
        "For writing applications: see [applications](../guides/applications.md),\n"
        "[tables and joins](../guides/tables-and-joins.md), [windows](../explanation/windows.md),\n"
        "[time](../explanation/time.md) and [webhooks and email](../guides/webhooks.md). `Stream`, `Table`,\n"
        "`Relation`, `Grouped`, `Windowed` and `Aggregation` are returned by methods; you need not import\n"
        "them.",
        (
            Entry(
                "App",
                headrace.App,
                own=(
                    "streams",
                    "tables",
                    "views",
                    "hooks",
                    "captures",
                    "followers",
                    "entity_types",
                    "reactions",
                ),
            ),
            Entry("Stream", Stream),
            Entry("Operations", Operations),
            Entry("Table", Table, own=("spec", "correct_for_us", "keep_us", "steps", "thresholds", "places")),
            Entry("Relation", Relation, own=("make", "steps", "place", "places")),
            Entry("Grouped", Grouped),
            Entry("Windowed", Windowed),
            Entry("Aggregation", Aggregation, ()),
            Entry(
                "Entities",
                sourcing.Entities,
                ("connect", "close"),
                own=("app", "kinds", "find_log", "make_stream", "find_keys"),
            ),
            Entry("EntityKind", sourcing.EntityKind, ("upcast", "events"), own=("entities", "kind")),
            Entry("Entity", sourcing.Entity, own=("entities", "kind", "entity")),
            Entry("Happened", sourcing.Happened),
            Entry("Answer", sourcing.Answer, ("accepted",), own=("offset",)),
            Entry("Rejected", headrace.Rejected),
            Entry(
                "KeyStore", personal.KeyStore, ("seal", "open", "open_all", "close"), own=("path", "master")
            ),
            Entry(
                "Personal",
                Constant(
                    "The type of a field that is sealed with the key of its subject: `Personal[str]` is a\n"
                    "text, or None once the subject is forgotten: see\n"
                    "[personal data](../guides/personal-data.md)."
                ),
            ),
            Entry("tumbling", headrace.tumbling),
            Entry("hopping", headrace.hopping),
            Entry("sliding", headrace.sliding),
            Entry("session", headrace.session),
            Entry("agg", headrace.agg),
            Entry(
                "PROCESSING_TIME",
                Constant(
                    "For `event_time=`: the moment at which a micro-batch is planned, instead of a time in\n"
                    "the record. Results then depend on when they are computed, and cannot be verified."
                ),
            ),
        ),
    ),
    Chapter(
        "headrace.outbox",
        "For writing events in an application's own transaction: see\n[outbox](../guides/capture.md#outbox).",
        (Entry("create_table", outbox.create_table), Entry("write", outbox.write)),
    ),
    Chapter(
        "headrace.derived",
        "Where derived systems keep their rows, for `App.follow`: see\n"
        "[derived systems](../guides/derived-systems.md).",
        (
            Entry("table", derived.table),
            Entry("redis", derived.redis),
            Entry("search", derived.search),
            Entry("opensearch", derived.opensearch),
            Entry("delta", derived.delta),
            Entry("verify_follow", derived.verify_follow),
            Entry("Verification", derived.Verification, ("is_equal", "to_json")),
        ),
    ),
    Chapter(
        "headrace.testing",
        "For testing applications, without a log and mostly without Spark: see\n"
        "[testing an application](../guides/testing.md).",
        (
            Entry("run_app", testing.run_app),
            Entry("AppRun", testing.AppRun),
            Entry("SideRecord", testing.SideRecord),
        ),
    ),
    Chapter(
        "headrace.views",
        "For reading views from Python: see [views](../explanation/views.md#reading). Stores have more\n"
        "methods, for writers.",
        (
            Entry("open_store", views.open_store),
            Entry(
                "ViewStore",
                ViewStore,
                ("read", "snapshot", "reflected", "changes", "last_sequence", "views", "schema", "close"),
            ),
            Entry("Condition", views.Condition),
            Entry("Order", views.Order),
            Entry("Snapshot", views.Snapshot),
            Entry("Reflected", views.Reflected, ()),
            Entry("Change", views.ViewChange),
        ),
    ),
    Chapter(
        "headrace.client",
        "confluent-kafka clients created from one description of a log. Any other Kafka client works too:\n"
        "see [coming from Kafka](../guides/from-kafka.md).",
        (
            Entry("Connection", client.Connection, ()),
            Entry("producer", client.producer),
            Entry("consumer", client.consumer),
            Entry("admin", client.admin),
            Entry("declare_watermark", client.declare_watermark),
        ),
    ),
    Chapter(
        "headrace.streams",
        "A local Spark, and the Headrace source in any Spark: see\n"
        "[the Spark source](../guides/spark-source.md) and [coming from Spark](../guides/from-spark.md).",
        (Entry("local_spark", streams.local_spark), Entry("register", streams.register)),
    ),
    Chapter(
        "headrace.errors",
        "All exceptions that Headrace raises on purpose form one tree.\n\n```text\n"
        + "\n".join(line for line in (errors.__doc__ or "").splitlines() if re.match(r"Headrace|[├└]", line))
        + "\n```",
        tuple(Entry(name, getattr(errors, name), ()) for name in errors.__all__),
    ),
)


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for chapter in CHAPTERS:
        parts.append(f"## {chapter.module}\n\n{chapter.intro}\n")
        parts.extend(part for entry in chapter.entries for part in _entry(entry))
    return "\n".join(parts)


def _entry(entry: Entry) -> Iterator[str]:
    if isinstance(entry.what, Constant):
        yield f"### {entry.name}\n\n{entry.what.doc}\n"
        return
    if not inspect.isclass(entry.what):
        yield _section("###", entry.name, entry.what)
        return
    yield f"### {entry.name}\n\n{_made_by(entry)}{_doc(entry.what)}\n"
    for name in _methods(entry):
        found = inspect.getattr_static(entry.what, name)
        if isinstance(found, property):
            yield f"#### {entry.name}.{name}\n\nA property. {_doc(found)}\n"
        else:
            yield _section("####", f"{entry.name}.{name}", getattr(entry.what, name))


def _section(level: str, name: str, function: Callable[..., Any]) -> str:
    return f"{level} {name}\n\n```python\n{signature(name, function)}\n```\n\n{_doc(function)}\n"


def _made_by(entry: Entry) -> str:
    """How an object of a class is made, where users make it."""
    if not dataclasses.is_dataclass(entry.what) or entry.what in (Stream, Windowed, Aggregation):
        return ""
    return f"```python\n{signature(entry.name, entry.what, without=entry.own)}\n```\n\n"


def _methods(entry: Entry) -> Iterator[str]:
    if entry.methods is not None:
        yield from entry.methods
        return
    for name, value in vars(entry.what).items():
        if not name.startswith("_") and (inspect.isroutine(value) or isinstance(value, property)):
            yield name


def _doc(what: Any) -> str:
    doc = what.__func__.__doc__ if isinstance(what, staticmethod) else getattr(what, "__doc__", None)
    return inspect.cleandoc(doc) if isinstance(doc, str) else ""


def signature(name: str, function: Callable[..., Any], *, without: Container[str] = ()) -> str:
    """A call as one would write it, with types and defaults; over several lines where it is long."""
    found = inspect.signature(function)
    given = [each for each in found.parameters.values() if each.name != "self" and each.name not in without]
    shown = list(_parameters(given))
    back = "" if inspect.isclass(function) else _annotation(found.return_annotation, " -> ")
    line = f"{name}({', '.join(shown)}){back}"
    if len(line) <= _WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){back}"


def _parameters(parameters: list[inspect.Parameter]) -> Iterator[str]:
    """Each as it stands in a signature, and the signs between them."""
    starred = False
    for number, each in enumerate(parameters):
        if each.kind is each.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        yield _parameter(each)
        following = parameters[number + 1].kind if number + 1 < len(parameters) else None
        if each.kind is each.POSITIONAL_ONLY and following is not each.POSITIONAL_ONLY:
            yield "/"


def _parameter(each: inspect.Parameter) -> str:
    stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    text = f"{stars}{each.name}{_annotation(each.annotation, ': ')}"
    return text if each.default is each.empty else f"{text} = {_default(each.default)}"


def _default(value: Any) -> str:
    if type(value).__name__ == "_HAS_DEFAULT_FACTORY_CLASS":
        return "{}"  # the only kind of collection that public classes make
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _annotation(annotation: Any, before: str) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else _type(annotation)
    marked = re.sub(r"\b(?:pa|pyarrow(?:\.lib)?)\.Table\b", "ArrowTable", text)
    plain = re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", marked).replace("'", '"')
    return before + re.sub(r"\bArrowTable\b", "pyarrow.Table", plain)


def _type(annotation: Any) -> str:
    if inspect.isclass(annotation) and not getattr(annotation, "__args__", None):
        is_arrows = annotation.__module__.startswith("pyarrow.")
        return f"pyarrow.{annotation.__name__}" if is_arrows else annotation.__name__
    return re.sub(r"ForwardRef\('([^']*)'\)", r"\1", str(annotation))


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
