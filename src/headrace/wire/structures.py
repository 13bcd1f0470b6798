"""One class a structure for all versions of a message: decoded bodies are instances of these."""

from functools import cache
from typing import Any

from headrace.wire.schemas import Field
from headrace.wire.values import Fields

__all__ = ["fields_of", "shape"]


@cache
def shape(path: tuple[Any, ...], fields: tuple[Field, ...]) -> type[Fields]:
    """A `Fields` class whose class attributes are the defaults of all versions' fields.

    A decoded body thus has every field that any version has, and handlers are
    written once.
    """
    name = "".join(word.title() for word in str(path[-1]).split("_"))
    defaults = {field.name: field.default for field in fields}
    return type(name, (Fields,), {**defaults, "known": frozenset(defaults)})


def fields_of(family: tuple[Field, ...], name: str) -> tuple[Field, ...]:
    """The fields of a structure in all versions, also those in which it is spelt otherwise."""
    return tuple(inner for twin in family if twin.name == name for inner in twin.of)
