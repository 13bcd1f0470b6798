"""Which fields are personal: those whose type is `Personal[…]`. Pure."""

import typing
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

__all__ = ["Personal", "mentions_personal", "personal_fields"]

T = TypeVar("T")


class _Mark:
    """Stands in an annotation for: this value belongs to a person."""

    def __repr__(self) -> str:
        return "personal"


_PERSONAL = _Mark()

Personal = Annotated[T | None, _PERSONAL]
"""The type of a field that is sealed with its subject's key: `Personal[str]` is a str, or None once the
subject is forgotten."""


def personal_fields(fields: Mapping[str, Any]) -> frozenset[str]:
    """Those of these fields, by name and type, that are marked."""
    return frozenset(name for name, hint in fields.items() if _is_marked(hint))


def mentions_personal(hint: Any) -> bool:
    """Whether a type has a mark anywhere inside, where it would be overlooked."""
    return any(_is_marked(each) or mentions_personal(each) for each in typing.get_args(hint))


def _is_marked(hint: Any) -> bool:
    return typing.get_origin(hint) is Annotated and _PERSONAL in hint.__metadata__
