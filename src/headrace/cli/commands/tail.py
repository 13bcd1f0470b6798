"""`headrace tail`: read a topic as it is and as it grows, disturbing nobody.

Partitions are assigned, not subscribed: no group is joined, no offset committed,
no topic created.
"""

from dataclasses import dataclass
from typing import Annotated

import typer

from headrace.cli.clients import new_log
from headrace.cli.failures import UsageError
from headrace.cli.offsets.positions import parse_position
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, TopicName
from headrace.cli.records.filters import Filter, compile_pattern
from headrace.cli.records.follow import OffsetRange, follow, until_interrupted
from headrace.cli.show.record_format import parse_format
from headrace.cli.show.records import RecordPrinter
from headrace.cli.terminal import Output, parse_time
from headrace.client.topics import Log, Position, PositionKind
from headrace.clock import SystemClock

__all__ = ["tail"]

DEFAULT_LAST = 10


def tail(
    topic: TopicName,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="Start at earliest, latest, an offset or a time (-2h, 2026-11-15T08:00Z).",
        ),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "--last",
            "-n",
            metavar="N",
            min=0,
            help=f"Start N records before the end of each partition. [default: {DEFAULT_LAST}]",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="POSITION", help="Stop before this position: latest, an offset or a time."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--max", metavar="N", min=1, help="Stop after N records.")
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="Only this partition; can be repeated."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Only records with this key.")
    ] = None,
    key_prefix: Annotated[
        str | None,
        typer.Option("--key-prefix", metavar="TEXT", help="Only records whose key starts with this."),
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option("--grep", metavar="TEXT", help="Only records whose value contains this text."),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(
            "--match", metavar="REGEX", help="Only records whose value matches this regular expression."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Only records with this timestamp or later; also where to start."
        ),
    ] = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="TIME", help="Only records with an earlier timestamp.")
    ] = None,
    follow_on: Annotated[
        bool | None,
        typer.Option(
            "--follow/--no-follow",
            help="Whether to wait for new records. Default: yes, unless --until is given.",
        ),
    ] = None,
    values: Annotated[
        bool, typer.Option("--values", help="Print only values, one per line; unchanged when piped.")
    ] = False,
    record_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="Print each record in this format, as in kcat: %t topic, %p partition, %o offset,"
            " %T timestamp, %k key, %s value, %K and %S their lengths, %h headers; \\n \\t \\xNN.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show a topic's records as they arrive (alias: consume)."""
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
    if as_json + values + (record_format is not None) > 1:
        raise UsageError("--json, --values and --format exclude each other; give only one")
    output = Output(as_json=as_json)
    written = None if record_format is None else parse_format(record_format)
    printer = RecordPrinter(output, wanted, values_only=values, limit=limit, written=written)
    with until_interrupted(output, has_end=scope.stop is not None or limit is not None):
        ranges = _ranges(new_log(bootstrap), topic, partition or [], scope)
        follow(bootstrap, ranges, printer, output)


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
    """The scope that the options mean together; raises UsageError where they contradict each other."""
    if start is not None and last is not None:
        raise UsageError("--from and --last exclude each other; give only one")
    if until is not None and follow_on:
        raise UsageError("--until and --follow exclude each other; give only one")
    stop = None if until is None else parse_position(until, now_ms)
    if stop is None and follow_on is False:
        stop = Position(PositionKind.LATEST)
    if start is not None:
        return Scope(start=parse_position(start, now_ms), stop=stop)
    if last is None and since_ms is not None:
        return Scope(start=Position(PositionKind.TIME, since_ms), stop=stop)
    return Scope(start=Position(PositionKind.LAST, DEFAULT_LAST if last is None else last), stop=stop)


def _ranges(log: Log, topic: str, only: list[int], scope: Scope) -> list[OffsetRange]:
    each = log.partitions(topic, only)
    bounds = log.bounds(each, committed_only=True)
    starts = log.place(each, scope.start, bounds)
    stops: dict[tuple[str, int], int] = {} if scope.stop is None else log.place(each, scope.stop, bounds)
    return [
        OffsetRange(topic=topic, partition=index, start=starts[topic, index], stop=stops.get((topic, index)))
        for topic, index in each
    ]
