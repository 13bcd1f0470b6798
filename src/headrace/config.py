"""Settings: frozen dataclasses whose every field has a default and a help text.

A room declares one class with `setting(...)` fields. Flags, environment
variables (`HEADRACE_<FIELD>`) and the table in `docs/reference/settings.md` all come from
it, so that a setting cannot exist without being documented.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, get_type_hints

from headrace.errors import ConfigError

__all__ = ["describe", "load", "setting"]

T = TypeVar("T")


def setting(default: Any, help: str) -> Any:  # noqa: A002 - the word users know
    """A dataclass field with its default and the sentence that documents it."""
    return dataclasses.field(default=default, metadata={"help": help})


def describe(settings: type) -> Iterator[tuple[str, str, Any, str]]:
    """Name, type, default and help of every setting, in order of declaration."""
    hints = get_type_hints(settings)
    for field in dataclasses.fields(settings):
        kind = hints[field.name]
        yield field.name, getattr(kind, "__name__", str(kind)), field.default, field.metadata["help"]


def load(
    settings: type[T], *, environment: Mapping[str, str] | None = None, prefix: str = "", **given: Any
) -> T:
    """Settings from what is given (None means not given), then the environment, then the defaults.

    `prefix` stands between HEADRACE_ and the name of a variable, for settings that share
    names with those of others. Raises ConfigError on a value of the wrong type, naming
    the variable.
    """
    environment = os.environ if environment is None else environment
    values = {name: value for name, value in given.items() if value is not None}
    for name, kind, _, _ in describe(settings):
        variable = f"HEADRACE_{prefix}{name.upper()}"
        if name not in values and variable in environment:
            values[name] = _parse(variable, kind, environment[variable])
    return settings(**values)


def _parse(variable: str, kind: str, text: str) -> Any:
    try:
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
    except ValueError:
        raise ConfigError(f"{variable}={text!r} is not a number; give a value of type {kind}") from None
    if kind == "bool":
        if text.lower() not in ("true", "false", "1", "0"):
            raise ConfigError(f"{variable}={text!r} is neither true nor false")
        return text.lower() in ("true", "1")
    return text
