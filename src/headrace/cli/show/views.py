"""Views, their rows and their changes as text. Pure, but for the printer's output."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.cli.terminal import Output, cell, table_text

if TYPE_CHECKING:
    from headrace.app.status import AppDescription
    from headrace.views import Condition, ViewChange, ViewSchema

__all__ = [
    "ChangePrinter",
    "described_views",
    "differences",
    "render_change",
    "render_comparison",
    "render_rows",
    "render_views",
]

Row = Mapping[str, Any]


def described_views(described: "AppDescription") -> list[dict[str, Any]]:
    """Plain data of every view and derived topic."""
    return [
        {
            "view": each.name,
            "kind": each.kind,
            "window": each.window,
            "key": list(each.key),
            "columns": dict(each.columns),
            "store": None if each.store is None else each.store.url,
            "topic": each.topic,
            "doc": each.doc,
        }
        for each in described.views
    ]


def render_views(data: Mapping[str, Any]) -> str:
    columns = ("view", "window", "key", "kept in", "what it is")
    rows = [
        [
            each["view"],
            each["window"],
            ", ".join(each["key"]),
            f"topic {each['topic']}" if each["topic"] else str(each["store"]).partition(":")[0],
            each["doc"],
        ]
        for each in data["views"]
    ]
    return table_text(columns, rows) if rows else f"{data['app']} has no views"


def render_rows(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """An aligned table; what is nested as JSON."""
    return table_text(columns, [[_shown(row[name]) for name in columns] for row in rows])


def render_comparison(data: Mapping[str, Any]) -> str:
    """How many rows of a rebuilt view differ from those that are shown, and the first of them."""
    view, listed = data["view"], data["differences"]
    total = data["changed"] + data["added"] + data["removed"]
    lines = [
        f"{view}: {data['shown_rows']:,} rows are shown, {data['rebuilt_rows']:,} were rebuilt",
        f"  {data['changed']:,} differ, {data['added']:,} are new, {data['removed']:,} are gone",
        *([f"  columns: {data['columns']}"] if data["columns"] else []),
        *(_difference(each) for each in listed),
        *([f"  … and {total - len(listed):,} more"] if total > len(listed) else []),
        f"`headrace views switch {view}` shows the rebuilt ones",
    ]
    return "\n".join(lines)


def _difference(found: Mapping[str, Any]) -> str:
    key, shown, rebuilt = found["key"], found["shown"], found["rebuilt"]
    name = " ".join(f"{field}={cell(value)}" for field, value in key.items())
    if rebuilt is None:
        return f"  - {name}"
    fields = [
        _value(field, (shown or {}).get(field), value, is_new=shown is None)
        for field, value in rebuilt.items()
        if field not in key and (shown is None or shown.get(field) != value)
    ]
    return f"  {'+' if shown is None else '~'} {name}: {', '.join(fields)}"


def _shown(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        from headrace.views import dumps

        return dumps(value)
    return value


def render_change(change: "ViewChange", kind: str) -> str:
    """One line: why, which row, and what of it is new."""
    before, after = change.before or {}, change.after or {}
    key = " ".join(f"{name}={cell(value)}" for name, value in change.key.items())
    if change.after is None:
        return f"{kind} {key}: removed"
    parts = [
        _value(name, before.get(name), value, is_new=change.before is None)
        for name, value in after.items()
        if name not in change.key and (change.before is None or before.get(name) != value)
    ]
    return f"{kind} {key}: {', '.join(parts) or 'unchanged'}"


def _value(name: str, before: Any, after: Any, *, is_new: bool) -> str:
    shown = f"{name}={cell(_shown(after))}"
    return shown if is_new else f"{name}={cell(_shown(before))} → {cell(_shown(after))}"


def differences(
    before: Mapping[Any, Row], after: Mapping[Any, Row], key: Sequence[str], batch_id: int, sequence: int
) -> "Iterator[ViewChange]":
    """What has to change in the one to make it the other, row by row, numbered behind `sequence`."""
    from headrace.views import ChangeKind, ViewChange

    changed = [each for each in {**before, **after} if before.get(each) != after.get(each)]
    for number, each in enumerate(changed, sequence + 1):
        old, new = before.get(each), after.get(each)
        row = new or old or {}
        yield ViewChange(
            sequence=number,
            batch_id=batch_id,
            kind=int(ChangeKind.RETRACTION if new is None else ChangeKind.UPDATE),
            key={name: row[name] for name in key},
            before=None if old is None else dict(old),
            after=None if new is None else dict(new),
        )


class ChangePrinter:
    """Prints the changes of rows that meet the conditions, before or after."""

    def __init__(
        self, output: Output, schema: "ViewSchema", where: "Sequence[Condition]", *, as_csv: bool
    ) -> None:
        from headrace.views import Selection

        self._output = output
        self._schema = schema
        self._selection = Selection.of(schema, where)
        self._as_csv = as_csv
        if as_csv:
            self._print_csv(["sequence", "kind", *schema.columns.names])

    def show(self, change: "ViewChange") -> None:
        from headrace.views import ChangeKind

        if not (self._meets(change.after) or self._meets(change.before)):
            return
        kind = ChangeKind(change.kind).name.lower()
        if self._as_csv:
            row = change.after or change.before or {}
            self._print_csv([change.sequence, kind, *(row.get(name) for name in self._schema.columns.names)])
        elif self._output.as_json:
            self._output.line(
                {
                    "sequence": change.sequence,
                    "batch_id": change.batch_id,
                    "kind": kind,
                    "key": change.key,
                    "before": change.before,
                    "after": change.after,
                }
            )
        else:
            self._output.write(render_change(change, kind))

    def _meets(self, row: Row | None) -> bool:
        if row is None:
            return False
        if not self._selection.where:
            return True
        import pyarrow as pa

        from headrace.views import from_json, select

        columns = {each.name: from_json([row.get(each.name)], each.type) for each in self._schema.columns}
        return bool(select(pa.table(columns), self._selection).num_rows)

    def _print_csv(self, values: Sequence[Any]) -> None:
        from headrace.views import csv_line

        self._output.write_bytes(csv_line(values).encode())
