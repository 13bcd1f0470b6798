"""Writes src/headrace/wire/schemas.py from kio's schemas: `.venv/bin/python tools/generate_schemas.py`.

kio has a dataclass a message and version; importing the hundreds that a broker
needs costs it a third of a second and tens of megabytes. So they are folded, once
and here, into one table with a range of versions a field. A test compares the two.
"""

import dataclasses
from datetime import datetime, timedelta
from pathlib import Path
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map

# What a client may ask of a broker; not what brokers and controllers ask of each other.
APIS = [0, 1, 2, 3, *range(8, 38), 42, 44, 47, 48, 49, 50, 51, 60, 61, 65, 66, 68, 69, 74, 75]
APIS += [76, 77, 78, 79, 90, 91, 92]
LEFT_OUT = {27, 34}  # WriteTxnMarkers, AlterReplicaLogDirs

TARGET = Path(__file__).parent.parent / "src/headrace/wire/schemas.py"

HEAD = '''"""Kafka's messages: generated from kio by tools/generate_schemas.py, not edited by hand.

A field stands at its place in the versions from `first` to `last`; a tagged one has
its tag. `of` are the fields of a structure. Names and kinds are kio's.
"""

# fmt: off

from enum import IntEnum
from typing import Any, NamedTuple

__all__ = ["MESSAGES", "ErrorCode", "Field", "Message"]


class Field(NamedTuple):
    """One field of a message, for a range of versions."""

    name: str
    kind: str
    first: int
    last: int
    default: Any = 0
    array: bool = False
    nullable: bool = False
    tag: int | None = None
    of: "tuple[Field, ...]" = ()


class Message(NamedTuple):
    """An API: its name, its versions, and its two messages."""

    name: str
    first: int
    last: int
    flexible_request: int
    flexible_response: int
    request: tuple[Field, ...]
    response: tuple[Field, ...]


'''


def entity(api_key: int, version: int, kind: str) -> Any:
    """kio's dataclass of one message."""
    versions = schema_name_map[api_key_map[api_key]]
    return next(resolve_name(path) for each, path in versions[version].items() if each.name == kind)


def without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) is UnionType:
        inner = [part for part in get_args(annotation) if part is not NoneType]
        return inner[0], len(inner) < len(get_args(annotation))
    return annotation, False


def describe(field: Any) -> dict[str, Any]:
    """One field of one version, without its place in the versions."""
    annotation, nullable = without_none(field.type)
    array = get_origin(annotation) is tuple
    if array:
        annotation, _ = without_none(get_args(annotation)[0])
    nested = annotation if dataclasses.is_dataclass(annotation) else None
    kind = field.metadata.get("kafka_type", "struct")
    tag = field.metadata.get("tag")
    # The zero UUID and the time -1 are how kio spells None; both are values on the wire.
    nullable = (
        nullable and kind not in ("uuid", "datetime_i64") and (tag is None or array or kind != "struct")
    )
    return {
        "name": field.name,
        "kind": kind,
        "array": array,
        "nullable": nullable,
        "tag": tag,
        "default": default_of(field, kind, array, nullable),
        "nested": nested,
    }


def default_of(field: Any, kind: str, array: bool, nullable: bool) -> Any:
    if field.default is not dataclasses.MISSING:
        value = plain(field.default)
        return -1 if value is None and kind == "datetime_i64" else value
    if array:
        return ()
    if nullable or kind in ("uuid", "struct"):
        return None
    if kind == "datetime_i64":
        return -1
    return {"string": "", "bytes": b"", "records": b"", "bool": False}.get(kind, 0)


def plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if dataclasses.is_dataclass(value):
        return None
    if isinstance(value, bool | str | bytes | tuple) or value is None:
        return value
    return int(value) if isinstance(value, int) else value


def ordered_names(entities: dict[int, Any]) -> list[str]:
    """All field names, in an order of which every version's is a part."""
    names: list[str] = []
    for each in entities.values():
        at = 0
        for field in dataclasses.fields(each):
            if field.name in names:
                at = names.index(field.name) + 1
            else:
                names.insert(at, field.name)
                at += 1
    return names


def fold(entities: dict[int, Any]) -> list[dict[str, Any]]:
    """The fields of a structure over its versions."""
    folded = []
    described = {
        version: {field.name: describe(field) for field in dataclasses.fields(each)}
        for version, each in entities.items()
    }
    for name in ordered_names(entities):
        runs: list[dict[str, Any]] = []
        for version in sorted(entities):
            found = described[version].get(name)
            if found is None:
                continue
            nested = found.pop("nested")
            if runs and runs[-1]["last"] == version - 1 and runs[-1]["facts"] == found:
                runs[-1]["last"] = version
            else:
                runs.append({"facts": found, "first": version, "last": version, "nested": {}})
            if nested is not None:
                runs[-1]["nested"][version] = nested
        folded += runs
    return folded


def spell(fields: list[dict[str, Any]], indent: str) -> str:
    lines = []
    for run in fields:
        facts = run["facts"]
        parts = [repr(facts["name"]), repr(facts["kind"]), str(run["first"]), str(run["last"])]
        if facts["default"] != 0 or isinstance(facts["default"], bool):
            parts.append(f"default={facts['default']!r}")
        parts += [f"{name}=True" for name in ("array", "nullable") if facts[name]]
        if facts["tag"] is not None:
            parts.append(f"tag={facts['tag']}")
        if run["nested"]:
            inner = spell(fold(run["nested"]), indent + "    ")
            parts.append(f"of=(\n{inner}{indent})")
        lines.append(f"{indent}Field({', '.join(parts)}),\n".replace("'", '"'))
    return "".join(lines)


def message(api_key: int) -> str:
    versions = sorted(schema_name_map[api_key_map[api_key]])
    texts, flexible = [], []
    for kind in ("request", "response"):
        entities = {version: entity(api_key, version, kind) for version in versions}
        flexible.append(
            min((v for v, each in entities.items() if each.__flexible__), default=versions[-1] + 1)
        )
        texts.append("(\n" + spell(fold(entities), "        ") + "    )")
    head = f'    "{api_key_map[api_key]}", {versions[0]}, {versions[-1]}, {flexible[0]}, {flexible[1]},\n'
    return f"MESSAGES[{api_key}] = Message(\n{head}    {texts[0]},\n    {texts[1]},\n)\n"


def error_codes() -> str:
    codes = "".join(f"    {code.name} = {code.value}\n" for code in ErrorCode)
    return f'class ErrorCode(IntEnum):\n    """Kafka\'s error codes."""\n\n{codes}\n\n'


def generate() -> str:
    """The text of the generated file."""
    apis = [api for api in sorted(set(APIS)) if api in api_key_map and api not in LEFT_OUT]
    return (
        HEAD
        + error_codes()
        + "MESSAGES: dict[int, Message] = {}\n\n"
        + "\n".join(message(api) for api in apis)
    )


if __name__ == "__main__":
    TARGET.write_text(generate())
