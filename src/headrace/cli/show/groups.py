"""What `headrace groups` shows: tables from plain data (`headrace.client.groups.summaries`). Pure."""

from typing import Any

from headrace.cli.offsets.reset_plan import Move
from headrace.cli.terminal import escape, format_span, format_time, table_text

__all__ = ["render_group", "render_groups", "render_plan", "reset_plan"]

Partition = tuple[str, int]
Data = dict[str, Any]


def render_groups(data: Data) -> str:
    if not data["groups"]:
        return "no groups; one appears when a consumer joins or commits an offset"
    return table_text(
        ("group", "state", "type"), [(row["group"], row["state"], row["type"]) for row in data["groups"]]
    )


def render_group(data: Data) -> str:
    parts = [_heading(data)]
    if data["partitions"]:
        parts.append(_render_partitions(data["partitions"]))
    if data["members"]:
        rows = [
            (
                each["member_id"],
                each["instance_id"],
                each["client_id"],
                each["host"],
                _owned(each["partitions"]),
            )
            for each in data["members"]
        ]
        parts.append(table_text(("member", "instance", "client", "host", "partitions"), rows))
    else:
        parts.append("no members")
    parts += _warnings(data["partitions"], data["events"])
    return "\n\n".join(parts)


def _heading(data: Data) -> str:
    behind = f"{data['lag_records']:,} records behind"
    if data["lag_seconds"]:
        behind += f", the oldest unread for {format_span(data['lag_seconds'])}"
    about = [data["state"], data["type"], data["assignor"], behind]
    return escape(f"group {data['group']}: {', '.join(each for each in about if each)}")


def _render_partitions(partitions: list[Data]) -> str:
    rows = [
        (
            f"{each['topic']}:{each['partition']}",
            each["committed"],
            each["log_end"],
            each["lag_records"],
            None if each["lag_seconds"] is None else format_span(each["lag_seconds"]),
            each["member_id"],
        )
        for each in partitions
    ]
    return table_text(("partition", "committed", "log end", "lag", "lag (time)", "member"), rows)


def _owned(partitions: list[Data]) -> str:
    by_topic: dict[str, list[int]] = {}
    for each in partitions:
        by_topic.setdefault(each["topic"], []).append(each["partition"])
    return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in by_topic.items())


def _warnings(partitions: list[Data], events: list[Data]) -> list[str]:
    warnings = [
        f"warning: {each['topic']}:{each['partition']} fell off the log: {each['lost_records']:,} records "
        "were deleted before this group read them"
        for each in partitions
        if each["lost_records"]
    ]
    warnings += [
        f"warning: {escape(each['topic'])}:{each['partition']} no longer exists; its committed offset remains"
        for each in partitions
        if each["log_end"] is None
    ]
    warnings += _event_warnings(events)
    return ["\n".join(warnings)] if warnings else []


def _event_warnings(events: list[Data]) -> list[str]:
    """Alerts that still hold, and falls, also of groups that have gone on since."""
    latest = {(each["topic"], each["partition"]): each for each in events if each["kind"] != "fell-off"}
    warnings = [
        f"warning: {escape(topic)}:{partition} is about to fall off the log: {alert['share']:.0%} of what "
        "retention keeps is unread"
        for (topic, partition), alert in sorted(latest.items())
        if alert["kind"] == "near-retention"
    ]
    fallen: dict[Partition, list[Data]] = {}
    for each in events:
        if each["kind"] == "fell-off":
            fallen.setdefault((each["topic"], each["partition"]), []).append(each)
    warnings += [
        f"warning: {escape(topic)}:{partition} fell off the log, last at {format_time(falls[-1]['at_ms'])}: "
        f"{sum(each['records'] for each in falls):,} records were lost to this group"
        for (topic, partition), falls in sorted(fallen.items())
    ]
    return warnings


def reset_plan(group: str, moves: list[Move], *, executed: bool) -> Data:
    """A plan, and whether it was applied; `replayed_records` is negative where records are skipped."""
    return {
        "group": group,
        "executed": executed,
        "partitions": [
            {
                "topic": move.topic,
                "partition": move.partition,
                "committed": move.committed,
                "target": move.target,
                "replayed_records": move.replayed_records,
                "log_start": move.bounds.start,
                "log_end": move.bounds.end,
                "clamped": move.clamped,
            }
            for move in moves
        ],
    }


def render_plan(data: Data) -> str:
    rows = [
        (
            f"{each['topic']}:{each['partition']}",
            each["committed"],
            each["target"],
            _effect(each["replayed_records"]),
            each["log_start"],
            each["log_end"],
            "moved into the log" if each["clamped"] else "",
        )
        for each in data["partitions"]
    ]
    columns = ("partition", "committed", "new", "effect", "log start", "log end", "")
    done = "applied" if data["executed"] else "dry run: nothing was changed; apply with --execute"
    return table_text(columns, rows, title=f"offsets of group {data['group']}") + f"\n\n{done}"


def _effect(replayed: int | None) -> str:
    if not replayed:
        return "set" if replayed is None else "unchanged"
    return f"reads {replayed:,} again" if replayed > 0 else f"skips {-replayed:,}"
