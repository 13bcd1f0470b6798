"""What `headrace run` and `headrace verify` show: a line a batch, a table of verdicts. Pure."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.cli.output import table_text

if TYPE_CHECKING:
    from headrace.app.reports import BatchReport
    from headrace.app.verifying import Verdict

__all__ = ["batch_line", "render_verdicts", "verdict_data", "verdict_line"]

_MAX_DIFFERENCES = 20
# Shown whether there are any or not; the other words of the books where one of them counts something.
_ALWAYS = ("on_time", "corrected", "dropped", "dead")


def batch_line(report: "BatchReport") -> str | None:
    """A batch that read or changed something, or could not read what retention had taken; None of others."""
    changed = {name: count for name, count in report.changed.items() if count}
    skipped = max((books.get("skipped", 0) for books in report.books.values()), default=0)
    if not (report.records or changed or skipped):
        return None
    parts = [f"{report.query} batch {report.batch_id}: {report.records:,} records"]
    parts += [f"{skipped:,} offsets skipped, which retention had taken"] if skipped else []
    parts += [f"{name} {count:,} changed{_late(report.books[name])}" for name, count in changed.items()]
    return "; ".join(parts)


def _late(books: Mapping[str, int]) -> str:
    parts = [f"{books[name]:,} {name}" for name in ("corrected", "dropped", "dead") if books.get(name)]
    return f" ({', '.join(parts)})" if parts else ""


def verdict_line(verdict: "Verdict") -> str:
    """One view, as soon as it is known; what differs, and why it failed, stands below the table."""
    if verdict.failure is not None:
        return f"{verdict.view}: FAILED"
    return f"{verdict.view}: {'equal' if verdict.is_equal else 'DIFFERENT'}"


def verdict_data(verdict: "Verdict") -> dict[str, Any]:
    """Plain values, for `--json`."""
    differences = [
        {"key": each.key, "served": each.served, "recomputed": each.recomputed}
        for each in verdict.differences[:_MAX_DIFFERENCES]
    ]
    return {
        "view": verdict.view,
        "rows": verdict.rows,
        "equal": verdict.is_equal,
        "failure": verdict.failure,
        "different": len(verdict.differences),
        "differences": differences,
        "books": dict(verdict.reflected.books),
        "offsets": verdict.reflected.offsets,
    }


def render_verdicts(verdicts: "Sequence[Verdict]") -> str:
    """A table with a row a view; why it failed, or its first differences, a line each."""
    from headrace.app.books import READ

    counted = {name for each in verdicts for name, count in each.reflected.books.items() if count}
    words = [name for name in READ if name in counted or name in _ALWAYS]
    columns = ("view", "rows", *(name.replace("_", " ") for name in words), "verdict")
    lines = [table_text(columns, [_row(each, words) for each in verdicts])]
    for verdict in verdicts:
        if verdict.failure is not None:
            lines.append(f"{verdict.view} could not be verified: {verdict.failure}")
        for each in verdict.differences[:_MAX_DIFFERENCES]:
            lines.append(f"{verdict.view} {each.key}: served {each.served}, recomputed {each.recomputed}")
        if len(verdict.differences) > _MAX_DIFFERENCES:
            lines.append(f"{verdict.view}: and {len(verdict.differences) - _MAX_DIFFERENCES:,} more")
    return "\n".join(lines)


def _row(verdict: "Verdict", words: Sequence[str]) -> list[Any]:
    if verdict.failure is not None:
        return [verdict.view, "-", *("-" for _ in words), "failed"]
    counts = [int(verdict.reflected.books.get(name, 0)) for name in words]
    word = "equal" if verdict.is_equal else f"{len(verdict.differences):,} rows differ"
    return [verdict.view, verdict.rows, *counts, word]
