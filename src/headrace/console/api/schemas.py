"""The shapes of what goes in and out, by name: JSON Schema, for the OpenAPI document.

Route modules add theirs with `SCHEMAS`, a dictionary that `openapi.py` merges.
"""

from typing import Any

__all__ = ["COMMON", "Schema", "array", "integer", "mapping", "nullable", "object_of", "ref", "string"]

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """A schema by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def string(help: str = "", **more: Any) -> Schema:  # noqa: A002 - the word users know
    return _described({"type": "string", **more}, help)


def integer(help: str = "", **more: Any) -> Schema:  # noqa: A002
    return _described({"type": "integer", **more}, help)


def array(items: Schema, help: str = "", **more: Any) -> Schema:  # noqa: A002
    return _described({"type": "array", "items": items, **more}, help)


def mapping(values: Schema, help: str = "") -> Schema:  # noqa: A002
    """An object whose names are data."""
    return _described({"type": "object", "additionalProperties": values}, help)


def nullable(schema: Schema) -> Schema:
    """The same, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def object_of(properties: dict[str, Schema], *, optional: tuple[str, ...] = (), **more: Any) -> Schema:
    """An object of exactly these properties, all required but the optional ones."""
    required = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        **more,
    }


def _described(schema: Schema, text: str) -> Schema:
    return {**schema, "description": text} if text else schema


ANYTHING: Schema = {"description": "Any JSON value."}

COMMON: dict[str, Schema] = {
    "Problem": {
        "type": "object",
        "description": "RFC 9457 problem details; `next` says what to do.",
        "properties": {
            "type": string("A stable identifier: urn:headrace:problem:…"),
            "title": string(),
            "status": integer(),
            "detail": string(),
            "next": string(),
        },
        "required": ["type", "title", "status", "detail", "next"],
    },
    "Anything": ANYTHING,
    "Offsets": mapping(mapping(integer()), "Next offsets by topic and partition."),
    "Text": string(),
}
