"""What `headrace run`, `state` and `verify` show: a line a batch, tables of state and verdicts. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.cli.terminal import table_text

if TYPE_CHECKING:
    from headrace.app.status import BatchReport, OperatorState
    from headrace.app.verify import Verdict

__all__ = [
    "batch_line",
    "render_state",
    "render_verdicts",
    "state_data",
    "verdict_data",
    "verdict_line",
]

_MAX_DIFFERENCES = 20
# Shown whether there are any or not; the other words of the counters where one of them counts something.
_ALWAYS = ("on_time", "corrected", "dropped", "dead")


def batch_line(report: "BatchReport") -> str | None:
    """A batch that read or changed something, or could not read what retention had taken; None of others."""
    changed = {name: count for name, count in report.changed.items() if count}
    skipped = max((counters.get("skipped", 0) for counters in report.counters.values()), default=0)
    if not (report.records or changed or skipped):
        return None
    parts = [f"{report.query} batch {report.batch_id}: {report.records:,} records"]
    parts += [f"{skipped:,} offsets skipped, which retention had taken"] if skipped else []
    parts += [f"{name} {count:,} changed{_late(report.counters[name])}" for name, count in changed.items()]
    return "; ".join(parts)


def _late(counters: Mapping[str, int]) -> str:
    parts = [f"{counters[name]:,} {name}" for name in ("corrected", "dropped", "dead") if counters.get(name)]
    return f" ({', '.join(parts)})" if parts else ""


def state_data(state: "OperatorState") -> dict[str, Any]:
    """The state of one operator as plain data: sums, and each input and bucket."""
    return {
        "query": state.query,
        "operator": state.operator,
        "rows": state.rows,
        "bytes": sum(state.bytes.values()),
        "skew": None if state.skew is None else round(state.skew, 2),
        "oldest": _moment(state.oldest_us),
        "inputs": [
            {"input": each.input, "bucket": each.bucket, "rows": each.rows, "oldest": _moment(each.oldest_us)}
            for each in state.held
        ],
        "buckets": [{"bucket": bucket, "bytes": size} for bucket, size in sorted(state.bytes.items())],
    }


def render_state(states: "Sequence[OperatorState]", *, by_bucket: bool) -> str:
    """A table with a line for each input of an operator, or for each of its buckets."""
    if not states:
        return "nothing here keeps state"
    whole = ("bucket", "rows", "bytes") if by_bucket else ("rows", "bytes", "skew")
    columns = ("query", "operator", "input", *whole, "oldest")
    rows = [row for state in states for row in _state_rows(state, by_bucket=by_bucket)]
    return table_text(columns, rows)


def _state_rows(state: "OperatorState", *, by_bucket: bool) -> Iterator[list[Any]]:
    """Bytes and skew are those of the operator, and stand in its first line; or bytes in the bucket's."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for each in state.held:
        groups.setdefault((each.bucket, each.input) if by_bucket else (each.input,), []).append(each)
    counted: set[Any] = set()
    for place, held in sorted(groups.items()) if by_bucket else groups.items():
        bucket = place[0] if by_bucket else None
        size = state.bytes.get(place[0], 0) if by_bucket else sum(state.bytes.values())
        is_first = bucket not in counted
        counted.add(bucket)
        shown = f"{size:,}" if is_first else ""
        skew = f"{state.skew:.1f}" if is_first and state.skew is not None else ""
        oldest = min((each.oldest_us for each in held if each.oldest_us is not None), default=None)
        rows = f"{sum(each.rows for each in held):,}"
        whole = [str(bucket), rows, shown] if by_bucket else [rows, shown, skew]
        yield [state.query, state.operator, place[-1], *whole, _moment(oldest) or ""]


def _moment(us: int | None) -> str | None:
    if us is None:
        return None
    try:
        return datetime.fromtimestamp(us / 1_000_000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
    except (OverflowError, ValueError, OSError):
        return None


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
        "hidden": verdict.hidden,
        "differences": differences,
        "counters": dict(verdict.reflected.counters),
        "inputs": {name: dict(counts) for name, counts in verdict.reflected.inputs.items()},
        "offsets": verdict.reflected.offsets,
    }


def render_verdicts(verdicts: "Sequence[Verdict]") -> str:
    """A table with a row a view; why it failed, or its first differences, a line each."""
    from headrace.app.query import READ

    counted = {name for each in verdicts for name, count in each.reflected.counters.items() if count}
    words = [name for name in READ if name in counted or name in _ALWAYS]
    columns = ("view", "rows", *(name.replace("_", " ") for name in words), "verdict")
    lines = [table_text(columns, [_row(each, words) for each in verdicts]), *_inputs(verdicts, words)]
    for verdict in verdicts:
        if verdict.failure is not None:
            lines.append(f"{verdict.view} could not be verified: {verdict.failure}")
        if verdict.hidden:
            lines.append(
                f"{verdict.view}: {verdict.hidden:,} rows are not shown, as others have their key: name more "
                "columns in it to see them"
            )
        for each in verdict.differences[:_MAX_DIFFERENCES]:
            lines.append(f"{verdict.view} {each.key}: served {each.served}, recomputed {each.recomputed}")
        if len(verdict.differences) > _MAX_DIFFERENCES:
            lines.append(f"{verdict.view}: and {len(verdict.differences) - _MAX_DIFFERENCES:,} more")
    return "\n".join(lines)


def _inputs(verdicts: "Sequence[Verdict]", words: Sequence[str]) -> list[str]:
    """A table of what views over several topics counted of each of them; none if there is no such view."""
    rows = [
        [verdict.view, name, *(int(counts.get(word, 0)) for word in words)]
        for verdict in verdicts
        for name, counts in verdict.reflected.inputs.items()
    ]
    columns = ("view", "input", *(name.replace("_", " ") for name in words))
    return [table_text(columns, rows)] if rows else []


def _row(verdict: "Verdict", words: Sequence[str]) -> list[Any]:
    if verdict.failure is not None:
        return [verdict.view, "-", *("-" for _ in words), "failed"]
    counts = [int(verdict.reflected.counters.get(name, 0)) for name in words]
    word = "equal" if verdict.is_equal else f"{len(verdict.differences):,} rows differ"
    return [verdict.view, verdict.rows, *counts, word]
