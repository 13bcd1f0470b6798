"""Entities for people: lists, histories, states and what an event changed. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from headrace.cli.terminal import table_text

__all__ = ["render_entities", "render_explanation", "render_history", "render_state"]

Data = Mapping[str, Any]


def render_entities(data: Data) -> str:
    """A table of entities."""
    if not data["entities"]:
        return f"no {data['type']} has any events"
    return table_text(("entity", "version"), [[each["entity"], each["version"]] for each in data["entities"]])


def render_history(data: Data) -> str:
    """A table of events."""
    if not data["events"]:
        return f"{data['type']} {data['entity']!r} has no events"
    columns = ("version", "at", "event", "data", "command", "by")
    return table_text(columns, [_event_row(each) for each in data["events"]])


def _event_row(event: Data) -> list[Any]:
    command = event["command"]["name"] or event["command"]["id"]
    return [event["version"], event["at"], event["type"], _short(event["data"]), command, event["by"]]


def render_state(data: Data) -> str:
    """A state, field by field."""
    head = f"{data['type']} {data['entity']}, version {data['version']}"
    return f"{head}\n{_indented(data['state'])}"


def render_explanation(data: Data) -> str:
    """An event, the command behind it and what it changed."""
    event = data["event"]
    lines = [
        f"{data['type']} {data['entity']}, version {event['version']}: "
        f"{event['type']} {_short(event['data'])}",
        f"  at {event['at']}" + (f" by {event['by']}" if event["by"] else ""),
        f"  command {event['command']['name']}, id {event['command']['id']}",
    ]
    if event["cause"]:
        lines.append(f"  caused by {event['cause']}")
    if event["correlation"] and event["correlation"] != event["command"]["id"]:
        lines.append(f"  correlation {event['correlation']}")
    lines += [
        f"  {name}: {_short(before)} → {_short(after)}" for name, (before, after) in data["changed"].items()
    ]
    return "\n".join(lines)


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _indented(value: Any) -> str:
    return "\n".join(f"  {line}" for line in json.dumps(value, indent=2, ensure_ascii=False).splitlines())
