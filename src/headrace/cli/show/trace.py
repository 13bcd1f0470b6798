"""Records behind rows, and rows behind records, for people. Pure."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.cli.terminal import table_text

if TYPE_CHECKING:
    from headrace.app.verify import RecordBehind

__all__ = ["behind_data", "render_affected", "render_reason"]

Data = Mapping[str, Any]
_WIDEST = 100


def behind_data(behind: "RecordBehind") -> dict[str, Any]:
    """A record as JSON."""
    from headrace.app.verify import shown_value
    from headrace.sourcing import format_time

    record, event = behind.record, behind.event
    return {
        "topic": behind.place.topic,
        "partition": behind.place.partition,
        "offset": behind.place.offset,
        "time": None if record is None else format_time(record.timestamp_ms),
        "key": None if record is None or record.key is None else record.key.decode(errors="replace"),
        "value": shown_value(record),
        "command": {"id": event["command"], "name": event.get("command_name")}
        if "command" in event
        else None,
        "by": event.get("by"),
    }


def render_reason(data: Data) -> str:
    """The row, and a table of its records."""
    row = ", ".join(f"{name} {_short(value)}" for name, value in data["row"].items())
    columns = ["record", "time", "value"]
    is_event = any(each["command"] for each in data["records"])
    columns += ["command", "by"] if is_event else []
    listed = table_text(columns, [_cells(each, is_event) for each in data["records"]])
    more = data["count"] - len(data["records"])
    tail = [f"and {more:,} more; see --limit"] if more else []
    return "\n".join([f"{data['view']}: {row}", listed, *tail])


def _cells(record: Data, is_event: bool) -> list[Any]:
    place = f"{record['topic']}:{record['partition']}:{record['offset']}"
    value = record["value"]
    if is_event and isinstance(value, dict) and "data" in value:
        value = {value.get("type"): value["data"]}
    cells = [place, record["time"] or "gone", _short(value)]
    command = record["command"] or {}
    return [*cells, command.get("name") or command.get("id"), record["by"]] if is_event else cells


def render_affected(data: Data) -> str:
    """A table of rows."""
    notes = list(data["notes"])
    if not data["rows"]:
        return "\n".join([f"no row has anything of {data['record']}", *notes])
    rows = [
        [each["view"], ", ".join(f"{name} {_short(value)}" for name, value in each["key"].items())]
        for each in data["rows"]
    ]
    return "\n".join([table_text(("view", "row"), rows), *notes])


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
