"""`headrace groups`: who reads what, how far behind, and moving committed offsets."""

from typing import Annotated, Any

import typer
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition

from headrace.cli.clients import new_log, new_reader, reachable
from headrace.cli.failures import UsageError
from headrace.cli.offsets.oldest_unread import oldest_unread
from headrace.cli.offsets.positions import parse_selector
from headrace.cli.offsets.reset_plan import Move, Shift, active_group_error, plan_reset
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, Yes
from headrace.cli.prompts import require_confirmation
from headrace.cli.show.groups import render_group, render_groups, render_plan, reset_plan
from headrace.cli.terminal import Output, parse_time
from headrace.client import group_events, queue_states, read_events
from headrace.client.connect import explained, from_kafka
from headrace.client.groups import (
    committed_offsets,
    describe_group,
    group_description,
    list_groups,
    require_group,
)
from headrace.client.topics import ANSWER_TIMEOUT_S, Log, PartitionKey, Position, PositionKind
from headrace.clock import SystemClock

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show groups and their lag; reset or delete offsets.",
)

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]


@app.command("list")
def list_command(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List groups, including queues, with their state."""
    groups = list_groups(new_log(bootstrap))
    groups += [
        {"group": name, "state": state, "type": "share"}
        for name, state in queue_states(reachable(bootstrap)).items()
    ]
    groups.sort(key=lambda row: row["group"])
    Output(as_json=as_json).document({"groups": groups}, render_groups)


@app.command("describe")
def describe(group: GroupName, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show a group's members and its lag in records and seconds."""
    log = new_log(bootstrap)
    description = describe_group(log, group)
    offsets = committed_offsets(log, group)
    _require_no_queue(bootstrap, group, offsets)
    require_group(description, offsets)
    present = _present(log, {*offsets, *description.owners})
    bounds = log.bounds(present)
    behind = {each: offsets[each] for each in present if each in offsets and offsets[each] < bounds[each].end}
    unread = oldest_unread(bootstrap, {each: bounds[each].clamp(offset) for each, offset in behind.items()})
    data = group_description(
        description,
        offsets=offsets,
        bounds=bounds,
        unread_ms=unread,
        now_ms=SystemClock().now_ms(),
        events=group_events(read_events(log, lambda: new_reader(bootstrap)), group),
    )
    Output(as_json=as_json).document(data, render_group)


def _require_no_queue(bootstrap: str, group: str, offsets: dict[PartitionKey, int]) -> None:
    """A queue has no offsets and no lag; what it has instead another command shows."""
    if not offsets and group in queue_states(reachable(bootstrap)):
        raise UsageError(f"{group} is a queue; see `headrace queues describe {group}`")


def _present(log: Log, partitions: set[PartitionKey]) -> list[PartitionKey]:
    """Those whose topic still exists: offsets may outlive it."""
    topics = log.cluster().topics
    return sorted(
        (topic, index) for topic, index in partitions if topic in topics and index in topics[topic].partitions
    )


@app.command("reset")
def reset(
    group: GroupName,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:PARTITION]",
            help="What to reset; can be repeated. Default: everything the group has committed.",
        ),
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", min=0, help="Reset to this offset.")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time", metavar="TIME", help="Reset to the first record at or after this time, such as -2h."
        ),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Reset to the log start.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Reset to the log end.")] = False,
    shift_by: Annotated[
        int | None,
        typer.Option("--shift-by", metavar="RECORDS", help="Move forward by N records, or back if negative."),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Apply the plan, or only show it.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Reset a group's offsets: shows the plan, applies with --execute."""
    target = parse_target(to_offset, to_time, to_earliest, to_latest, shift_by, now_ms=SystemClock().now_ms())
    log = new_log(bootstrap)
    description = describe_group(log, group)
    if description.members:
        raise active_group_error(group, description.state, len(description.members))
    moves = _plan(log, group, topic or [], target)
    if execute:
        _apply(log, group, moves)
    Output(as_json=as_json).document(reset_plan(group, moves, executed=execute), render_plan)


def parse_target(
    to_offset: int | None,
    to_time: str | None,
    to_earliest: bool,
    to_latest: bool,
    shift_by: int | None,
    *,
    now_ms: int,
) -> Position | Shift:
    """The one target among the options; raises UsageError when there is none, or several."""
    targets: list[Position | Shift] = []
    if to_offset is not None:
        targets.append(Position(PositionKind.OFFSET, to_offset))
    if to_time is not None:
        targets.append(Position(PositionKind.TIME, parse_time(to_time, now_ms)))
    if to_earliest:
        targets.append(Position(PositionKind.EARLIEST))
    if to_latest:
        targets.append(Position(PositionKind.LATEST))
    if shift_by is not None:
        targets.append(Shift(shift_by))
    if len(targets) != 1:
        raise UsageError(
            "give exactly one of --to-offset, --to-time, --to-earliest, --to-latest and --shift-by, "
            f"not {len(targets) or 'none'}"
        )
    return targets[0]


def _plan(log: Log, group: str, selectors: list[str], target: Position | Shift) -> list[Move]:
    offsets = committed_offsets(log, group)
    chosen = _chosen(log, selectors) if selectors else _present(log, set(offsets))
    if not chosen:
        raise UsageError(f"group {group!r} has no committed offsets; name what to reset with --topic")
    timed = isinstance(target, Position) and target.kind is PositionKind.TIME
    return plan_reset(
        target,
        committed={each: offsets.get(each) for each in chosen},
        bounds=log.bounds(chosen),
        offsets_at_time=log.offsets_at(chosen, target.number)
        if timed and isinstance(target, Position)
        else {},
    )


def _chosen(log: Log, selectors: list[str]) -> list[PartitionKey]:
    chosen: set[PartitionKey] = set()
    for topic, partition in map(parse_selector, selectors):
        chosen.update(log.partitions(topic, () if partition is None else (partition,)))
    return sorted(chosen)


def _apply(log: Log, group: str, moves: list[Move]) -> None:
    wanted = [TopicPartition(move.topic, move.partition, move.target) for move in moves]
    doing = f"resetting group {group!r}"
    with explained(doing, log.bootstrap):
        asked = [ConsumerGroupTopicPartitions(group, wanted)]
        futures = log.client.alter_consumer_group_offsets(asked, request_timeout=ANSWER_TIMEOUT_S)
        done: Any = futures[group].result()
    for each in done.topic_partitions:
        if each.error is None:
            continue
        if each.error.code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS):
            current = describe_group(log, group)
            raise active_group_error(group, current.state, len(current.members))
        raise from_kafka(each.error, f"{doing}, {each.topic}:{each.partition}", log.bootstrap)


@app.command("delete")
def delete(
    group: GroupName, yes: Yes = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False
) -> None:
    """Delete a group and its offsets, after confirmation."""
    log = new_log(bootstrap)
    description = describe_group(log, group)
    require_group(description, committed_offsets(log, group))
    if not yes:
        require_confirmation(f"This deletes group {group} and its committed offsets", group)
    with explained(f"deleting group {group!r}", bootstrap):
        log.client.delete_consumer_groups([group], request_timeout=ANSWER_TIMEOUT_S)[group].result()
    Output(as_json=as_json).document({"group": group, "deleted": True}, lambda _: f"deleted group {group}")
