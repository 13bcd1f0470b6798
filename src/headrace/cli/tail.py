"""`headrace tail`: read a topic as it is and as it grows, disturbing nobody.

Partitions are assigned, not subscribed: no group is joined, no offset committed,
no topic created.
"""

from dataclasses import dataclass
from typing import Annotated

import typer

from headrace.cli.connection import admin
from headrace.cli.failures import UsageFaultError
from headrace.cli.filters import Filter, compile_pattern
from headrace.cli.following import Range, follow
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, TopicName
from headrace.cli.output import Output
from headrace.cli.positions import parse_position
from headrace.cli.record_views import RecordPrinter
from headrace.cli.times import parse_time
from headrace.client.places import Kind, Position
from headrace.client.questions import Log
from headrace.clock import SystemClock

__all__ = ["tail"]

DEFAULT_LAST = 10


def tail(
    topic: TopicName,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="PLACE", help="earliest, latest, an offset or a time (-2h, 2026-11-15T08:00Z)."
        ),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "--last",
            "-n",
            metavar="N",
            min=0,
            help=f"Start so many records before the end of each partition. [default: {DEFAULT_LAST}]",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="PLACE", help="Stop before this place: latest, an offset or a time."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--max", metavar="N", min=1, help="Stop after showing so many records.")
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="Only this one; repeat for more."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Only records with this key.")
    ] = None,
    key_prefix: Annotated[
        str | None, typer.Option("--key-prefix", metavar="TEXT", help="Only keys that begin so.")
    ] = None,
    grep: Annotated[
        str | None, typer.Option("--grep", metavar="TEXT", help="Only values that hold this text.")
    ] = None,
    match: Annotated[
        str | None,
        typer.Option("--match", metavar="REGEX", help="Only values where this expression is found."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Only records stamped at or after; also where to start."
        ),
    ] = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="TIME", help="Only records stamped before.")
    ] = None,
    follow_on: Annotated[
        bool | None,
        typer.Option(
            "--follow/--no-follow", help="Wait for new records; the default unless --until is given."
        ),
    ] = None,
    values: Annotated[
        bool, typer.Option("--values", help="Only the values, a line each; byte for byte into a pipe.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show a topic's records, and new ones as they arrive."""
    now_ms = SystemClock().now_ms()
    wanted = Filter(
        key=None if key is None else key.encode(),
        key_prefix=None if key_prefix is None else key_prefix.encode(),
        contains=grep,
        pattern=None if match is None else compile_pattern(match),
        since_ms=None if since is None else parse_time(since, now_ms),
        before_ms=None if before is None else parse_time(before, now_ms),
    )
    scope = parse_scope(start, last, until, follow_on, since_ms=wanted.since_ms, now_ms=now_ms)
    output = Output(as_json=as_json)
    ranges = _ranges(Log(admin(bootstrap), bootstrap), topic, partition or [], scope)
    follow(bootstrap, ranges, RecordPrinter(output, wanted, values_only=values, limit=limit), output)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where a tail starts and stops; no stop means that it goes on."""

    start: Position
    stop: Position | None


def parse_scope(
    start: str | None,
    last: int | None,
    until: str | None,
    follow_on: bool | None,
    *,
    since_ms: int | None,
    now_ms: int,
) -> Scope:
    """The scope that the options mean together; raises UsageFaultError where they contradict each other."""
    if start is not None and last is not None:
        raise UsageFaultError("--from and --last both say where to start; give one of them")
    if until is not None and follow_on:
        raise UsageFaultError("--until stops and --follow goes on; give one of them")
    stop = None if until is None else parse_position(until, now_ms)
    if stop is None and follow_on is False:
        stop = Position(Kind.LATEST)
    if start is not None:
        return Scope(start=parse_position(start, now_ms), stop=stop)
    if last is None and since_ms is not None:
        return Scope(start=Position(Kind.TIME, since_ms), stop=stop)
    return Scope(start=Position(Kind.LAST, DEFAULT_LAST if last is None else last), stop=stop)


def _ranges(log: Log, topic: str, only: list[int], scope: Scope) -> list[Range]:
    each = log.partitions(topic, only)
    bounds = log.bounds(each, committed_only=True)
    starts = log.place(each, scope.start, bounds)
    stops: dict[tuple[str, int], int] = {} if scope.stop is None else log.place(each, scope.stop, bounds)
    return [
        Range(topic=topic, partition=index, start=starts[topic, index], stop=stops.get((topic, index)))
        for topic, index in each
    ]
