"""Text with the fields of a record in it. Pure, and no language: names in braces, nothing else.

`{amount}` is a field of the record's JSON value, `{customer.name}` a field within one,
`{_topic}`, `{_partition}`, `{_offset}`, `{_time}`, `{_key}` and `{_value}` are the record's
own. `{{` and `}}` are braces. A name that the record does not have stays as it is written,
so that a slip of the pen can be seen.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["fill"]

_PART = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_.-]*)\}")


def fill(template: str, fields: Mapping[str, Any]) -> str:
    """The template with every name replaced by its value."""
    return _PART.sub(lambda found: _replacement(found, fields), template)


def _replacement(found: "re.Match[str]", fields: Mapping[str, Any]) -> str:
    name = found.group(1)
    if name is None:
        return found.group()[0]
    value: Any = fields
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return found.group()
        value = value[part]
    return _text(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
