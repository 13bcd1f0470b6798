"""Writes docs/reference.md from the code: public names, their signatures and their docstrings.

    .venv/bin/python -m tools.reference

A test makes the page anew and compares. What is listed here is public: a class with the
methods that are for users, or all of them.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace
from headrace import client, errors, streams, testing, views
from headrace.app import Aggregation, Stream, Windowed
from headrace.views import ViewStore

PAGE = Path(__file__).parent.parent / "docs" / "reference.md"
COMMAND = ".venv/bin/python -m tools.reference"

_WIDTH = 100
_HEAD = (
    "# Reference\n\n"
    f"Every public name, its arguments and what it promises; made from the code by `{COMMAND}` and compared "
    "by a test. How things hang together is told in the pages of the [index](README.md). Commands are in "
    "[cli.md](cli.md), settings in [settings.md](settings.md), the HTTP API in [http.md](http.md) and, as "
    "OpenAPI, at `/openapi.json` of a running console.\n\n"
    "What is not listed here may change without notice. Version 0.1 is in development: what is listed may "
    "change too, and the [changes](../CHANGELOG.md) say so.\n"
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
        "What an application is written with: [applications](streams.md), [windows](windows.md), "
        "[time](time.md), [webhooks and mail](webhooks.md). `Stream`, `Windowed` and `Aggregation` are what "
        "methods return; they need not be imported.",
        (
            Entry("App", headrace.App, own=("streams", "views", "hooks")),
            Entry("Stream", Stream),
            Entry("Windowed", Windowed),
            Entry("Aggregation", Aggregation, ()),
            Entry("tumbling", headrace.tumbling),
            Entry("hopping", headrace.hopping),
            Entry("sliding", headrace.sliding),
            Entry("session", headrace.session),
            Entry("agg", headrace.agg),
            Entry(
                "PROCESSING_TIME",
                Constant(
                    "For `event_time=`: the moment at which a micro-batch is planned, instead of a time in "
                    "the record. Results then depend on when they are computed, and cannot be proved."
                ),
            ),
        ),
    ),
    Chapter(
        "headrace.testing",
        "Tests of applications, without log and mostly without Spark: "
        "[testing an application](testing.md#testing-an-application).",
        (
            Entry("run_app", testing.run_app),
            Entry("AppRun", testing.AppRun),
            Entry("Aside", testing.Aside),
        ),
    ),
    Chapter(
        "headrace.views",
        "Reading views from Python: [views](views.md#reading). Who writes has more methods.",
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
            Entry("Change", views.Change),
        ),
    ),
    Chapter(
        "headrace.client",
        "Kafka clients (confluent-kafka's) made from one description of a log; any other Kafka client does, "
        "too: [from Kafka](from-kafka.md).",
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
        "A Spark on this machine, and our source in any Spark: [the source](source.md), "
        "[from Spark](from-spark.md).",
        (Entry("local_spark", streams.local_spark), Entry("register", streams.register)),
    ),
    Chapter(
        "headrace.errors",
        "Everything that is raised on purpose, in one tree.\n\n```text\n"
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
    plain = re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", text).replace("'", '"')
    return before + re.sub(r"\bTable\b", "pyarrow.Table", plain)


def _type(annotation: Any) -> str:
    if inspect.isclass(annotation) and not getattr(annotation, "__args__", None):
        return annotation.__name__
    return re.sub(r"ForwardRef\('([^']*)'\)", r"\1", str(annotation))


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
