"""`headrace groups`: who reads what, how far behind, and moving committed offsets."""

from typing import Annotated, Any

import typer
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition

from headrace.cli.connection import admin
from headrace.cli.events import group_events, read_events
from headrace.cli.failures import UsageFaultError
from headrace.cli.group_views import render_description, render_groups, render_plan, reset_plan
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, Yes
from headrace.cli.output import Output
from headrace.cli.positions import parse_selector
from headrace.cli.prompts import require_confirmation
from headrace.cli.queue_questions import queue_states
from headrace.cli.resets import Move, Shift, active_group_error, plan_reset
from headrace.cli.times import parse_time
from headrace.cli.unread import oldest_unread
from headrace.client.failures import explained, from_kafka
from headrace.client.group_data import described
from headrace.client.group_questions import (
    committed_offsets,
    describe_group,
    list_groups,
    require_group,
)
from headrace.client.places import Kind, Position
from headrace.client.questions import ANSWER_TIMEOUT_S, Log, Partition
from headrace.clock import SystemClock

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show groups and their lag; move or delete their offsets.",
)

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]


@app.command("list")
def list_command(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List groups, queues among them, with their state."""
    groups = list_groups(Log(admin(bootstrap), bootstrap))
    groups += [
        {"group": name, "state": state, "type": "share"} for name, state in queue_states(bootstrap).items()
    ]
    groups.sort(key=lambda row: row["group"])
    Output(as_json=as_json).document({"groups": groups}, render_groups)


@app.command("describe")
def describe(group: GroupName, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show a group's members and its lag in records and seconds."""
    log = Log(admin(bootstrap), bootstrap)
    description = describe_group(log, group)
    offsets = committed_offsets(log, group)
    _require_no_queue(bootstrap, group, offsets)
    require_group(description, offsets)
    present = _present(log, {*offsets, *description.owners})
    bounds = log.bounds(present)
    behind = {each: offsets[each] for each in present if each in offsets and offsets[each] < bounds[each].end}
    unread = oldest_unread(bootstrap, {each: bounds[each].clamp(offset) for each, offset in behind.items()})
    data = described(
        description,
        offsets=offsets,
        bounds=bounds,
        unread_ms=unread,
        now_ms=SystemClock().now_ms(),
        events=group_events(read_events(log), group),
    )
    Output(as_json=as_json).document(data, render_description)


def _require_no_queue(bootstrap: str, group: str, offsets: dict[Partition, int]) -> None:
    """A queue has no offsets and no lag; what it has instead another command shows."""
    if not offsets and group in queue_states(bootstrap):
        raise UsageFaultError(f"{group} is a queue; see `headrace queues describe {group}`")


def _present(log: Log, partitions: set[Partition]) -> list[Partition]:
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
            help="What to reset; repeat for more. All that the group has committed when left out.",
        ),
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", min=0, help="To this offset.")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option("--to-time", metavar="TIME", help="To the first record at or after, e.g. -2h."),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the log start.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the log end.")] = False,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="RECORDS", help="Forward, or back when negative.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Apply the plan; by default it is only shown.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Plan a move of a group's offsets, and apply it with --execute."""
    target = parse_target(to_offset, to_time, to_earliest, to_latest, shift_by, now_ms=SystemClock().now_ms())
    log = Log(admin(bootstrap), bootstrap)
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
    """The one target among the options; raises UsageFaultError when there is none, or several."""
    targets: list[Position | Shift] = []
    if to_offset is not None:
        targets.append(Position(Kind.OFFSET, to_offset))
    if to_time is not None:
        targets.append(Position(Kind.TIME, parse_time(to_time, now_ms)))
    if to_earliest:
        targets.append(Position(Kind.EARLIEST))
    if to_latest:
        targets.append(Position(Kind.LATEST))
    if shift_by is not None:
        targets.append(Shift(shift_by))
    if len(targets) != 1:
        raise UsageFaultError(
            "give exactly one of --to-offset, --to-time, --to-earliest, --to-latest and --shift-by, "
            f"not {len(targets) or 'none'}"
        )
    return targets[0]


def _plan(log: Log, group: str, selectors: list[str], target: Position | Shift) -> list[Move]:
    offsets = committed_offsets(log, group)
    chosen = _chosen(log, selectors) if selectors else _present(log, set(offsets))
    if not chosen:
        raise UsageFaultError(f"group {group!r} has committed no offsets; name what to reset with --topic")
    timed = isinstance(target, Position) and target.kind is Kind.TIME
    return plan_reset(
        target,
        committed={each: offsets.get(each) for each in chosen},
        bounds=log.bounds(chosen),
        offsets_at_time=log.offsets_at(chosen, target.number)
        if timed and isinstance(target, Position)
        else {},
    )


def _chosen(log: Log, selectors: list[str]) -> list[Partition]:
    chosen: set[Partition] = set()
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
    """Delete a group and its committed offsets; asks for its name."""
    log = Log(admin(bootstrap), bootstrap)
    description = describe_group(log, group)
    require_group(description, committed_offsets(log, group))
    if not yes:
        require_confirmation(f"This deletes group {group} and its committed offsets", group)
    with explained(f"deleting group {group!r}", bootstrap):
        log.client.delete_consumer_groups([group], request_timeout=ANSWER_TIMEOUT_S)[group].result()
    Output(as_json=as_json).document({"group": group, "deleted": True}, lambda _: f"deleted group {group}")
