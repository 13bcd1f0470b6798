"""One shape for all versions of a structure.

A decoded body has every field that any version has; what its own version lacks
stands at its default, as an attribute of the class. So handlers are written once.
"""

import dataclasses
from datetime import datetime, timedelta
from functools import cache
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from kio.schema.index import schema_name_map

from headrace.wire.values import Fields

__all__ = ["default_of", "union", "without_none"]


def without_none(annotation: Any) -> tuple[Any, bool]:
    """The annotation without `| None`, and whether it had it."""
    if get_origin(annotation) is UnionType:
        inner = [part for part in get_args(annotation) if part is not NoneType]
        return inner[0], len(inner) < len(get_args(annotation))
    return annotation, False


def _plain(value: Any) -> Any:
    """A default of kio's in our vocabulary: milliseconds and integers."""
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def default_of(field: Any, annotation: Any, nullable: bool, kind: str | None) -> Any:
    if field.default is not dataclasses.MISSING:
        value = _plain(field.default)
        return -1 if value is None and kind == "datetime_i64" else value
    if get_origin(annotation) is tuple:
        return ()
    if nullable or kind == "uuid":
        return -1 if kind == "datetime_i64" else None
    if kind is None:
        return {}
    return {"string": "", "bytes": b"", "records": b"", "bool": False}.get(kind, 0)


def _walk(entity: Any, path: tuple[str, ...]) -> Any:
    """The dataclass that stands at a path of field names below an entity, or None."""
    for name in path:
        field = next((field for field in dataclasses.fields(entity) if field.name == name), None)
        if field is None:
            return None
        annotation, _ = without_none(field.type)
        if get_origin(annotation) is tuple:
            annotation, _ = without_none(get_args(annotation)[0])
        if not dataclasses.is_dataclass(annotation):
            return None
        entity = annotation
    return entity


def _path_to(entity: Any, wanted: Any, path: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    if entity is wanted:
        return path
    for field in dataclasses.fields(entity):
        below = _walk(entity, (field.name,))
        if below is not None:
            found = _path_to(below, wanted, (*path, field.name))
            if found is not None:
                return found
    return None


def _roots(entity: Any) -> list[Any]:
    """The same message in every version that has a schema, oldest first."""
    module = entity.__module__
    name = module.split(".")[2]
    versions = schema_name_map[name]
    kind = module.rsplit(".", 1)[1]
    found = []
    for version in sorted(versions):
        for entity_type, target in versions[version].items():
            if entity_type.name == kind:
                found.append(resolve_name(target))
    return found


@cache
def union(entity: Any) -> type[Fields]:
    """A `Fields` class whose class attributes are the defaults of all versions' fields."""
    module = entity.__module__
    if not module.endswith((".request", ".response")):
        return _shape(entity.__name__, [entity])
    own_root = next(root for root in _roots(entity) if root.__module__ == module)
    path = _path_to(own_root, entity) or ()
    return _union_at(_roots(entity)[-1], path)


@cache
def _union_at(newest_root: Any, path: tuple[str, ...]) -> type[Fields]:
    twins = [twin for root in _roots(newest_root) if (twin := _walk(root, path)) is not None]
    return _shape(twins[-1].__name__, twins)


def _shape(name: str, twins: list[Any]) -> type[Fields]:
    defaults: dict[str, Any] = {}
    for twin in twins:
        for field in dataclasses.fields(twin):
            annotation, nullable = without_none(field.type)
            default = default_of(field, annotation, nullable, field.metadata.get("kafka_type"))
            defaults[field.name] = None if isinstance(default, dict) else default
    return type(name, (Fields,), {**defaults, "known": frozenset(defaults)})
