"""`headrace deadletters`: records that streams could not read, and sending them again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from headrace.cli.clients import Clients, new_log
from headrace.cli.identity import connection_to
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from headrace.cli.records.follow import OffsetRange, follow
from headrace.cli.records.lines import ReadRecord, record_to_json
from headrace.cli.terminal import Output, escape, render_payload, table_text
from headrace.client import RawFetcher
from headrace.client.deadletters import (
    DeadLetter,
    ReasonCounts,
    Redrive,
    RedriveProgress,
    dead_letter_topics,
    read_dead_letter,
    redrive_progress,
)
from headrace.client.topics import RecordCounter
from headrace.records import DEAD_LETTER_PREFIXES

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show dead letters, and redrive them.",
)

DeadTopic = Annotated[str, typer.Argument(metavar="TOPIC", help="Dead-letter topic, such as shop.dead.")]
_SHOWN_VALUE = 200
_COUNTED_BYTES = 256 << 20  # of each partition; what lies behind is counted by its offsets
_WHY_SKIPPED = "their source is unknown, or they are truncated and the original record is gone"


@app.command("list")
def list_command(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Dead-letter topic. Default: list all topics.")
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option("--reason", metavar="TEXT", help="Only reasons and errors that contain this text."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="TOPIC", help="Only dead letters from this source topic."),
    ] = None,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Only dead letters that have not been redriven.")
    ] = False,
    most: Annotated[
        int | None, typer.Option("--most", metavar="N", min=1, help="Show no more than N.")
    ] = None,
    by_reason: Annotated[
        bool, typer.Option("--by-reason", help="Count by reason and source, with the newest of each.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List dead-letter topics, or the dead letters of one."""
    log, output = new_log(bootstrap), Output(as_json=as_json)
    if topic is None:
        with RawFetcher(connection_to(bootstrap)) as fetcher:
            topics = dead_letter_topics(log, fetcher, RecordCounter(_COUNTED_BYTES))
        output.document({"topics": topics}, _render_summaries)
        return
    limits = log.bounds(log.partitions(topic), committed_only=True)
    sent = redrive_progress(log, topic) if waiting else {}
    ranges = [
        OffsetRange(
            topic=topic,
            partition=index,
            start=max(bound.start, sent[index].next if index in sent else 0),
            stop=bound.end,
        )
        for (_, index), bound in limits.items()
    ]
    show = _Printer(output, reason, source, most, sent, ReasonCounts() if by_reason else None)
    follow(bootstrap, ranges, show, output)
    if show.book is not None:
        output.document({"reasons": show.book.to_json()}, _render_reasons)


def _render_reasons(data: dict[str, Any]) -> str:
    if not data["reasons"]:
        return "no dead letters"
    rows = [
        (
            each["letters"],
            each["source"],
            each["reason"],
            "{topic}:{partition}:{offset}".format(**each["newest"]),
        )
        for each in data["reasons"]
    ]
    lines = [
        (count, escape(source or "unknown"), escape(reason), place) for count, source, reason, place in rows
    ]
    return table_text(("dead letters", "from", "reason", "newest"), lines)


def _render_summaries(data: dict[str, Any]) -> str:
    if not data["topics"]:
        return "no dead-letter topics"
    rows = [
        (row["topic"], _at_most(row["letters"], row), _at_most(row["waiting"], row)) for row in data["topics"]
    ]
    return table_text(("topic", "dead letters", "not redriven"), rows)


def _at_most(count: int, row: dict[str, Any]) -> int | str:
    return count if row["exact"] else f"at most {count:,}"


@dataclass(slots=True)
class _Printer:
    """Shows letters that pass, up to a number."""

    output: Output
    reason: str | None
    source: str | None
    most: int | None
    sent: Mapping[int, RedriveProgress]
    book: ReasonCounts | None = None
    shown: int = 0

    def __call__(self, record: ReadRecord) -> bool:
        letter = read_dead_letter(record.headers)
        again = record.partition in self.sent and self.sent[record.partition].has(record.offset)
        if letter is not None and not again and self._passes(letter):
            if self.book is None:
                self._show(letter, record)
            else:
                self.book.add(letter, record.topic, record.partition, record.offset)
            self.shown += 1
        return self.most is None or self.shown < self.most

    def _passes(self, letter: DeadLetter) -> bool:
        said = f"{letter.reason or ''} {letter.error or ''}".lower()
        if self.reason is not None and self.reason.lower() not in said:
            return False
        return self.source is None or letter.topic == self.source

    def _show(self, letter: DeadLetter, record: ReadRecord) -> None:
        if self.output.as_json:
            self.output.line(_letter_json(letter, record))
            return
        came = "unknown" if letter.source is None else "{}:{}:{}".format(*letter.source)
        place = f"{record.topic}:{record.partition}:{record.offset}"
        head = f"{place}  from {came}  {letter.explanation}"
        value = "null" if record.value is None else render_payload(record.value[:_SHOWN_VALUE])
        key = "" if record.key is None else f"{render_payload(record.key)} = "
        self.output.write(escape(head) + "\n" + _indented(key + value))


def _letter_json(letter: DeadLetter, record: ReadRecord) -> dict[str, Any]:
    """The letter's own words, and the record that it is."""
    shown = record_to_json(record)
    shown["headers"] = [each for each in shown["headers"] if not each["key"].startswith(DEAD_LETTER_PREFIXES)]
    return {"dead_letter": letter.to_json(), **shown}


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.split("\n"))


@app.command("redrive")
def redrive(
    topic: DeadTopic,
    most: Annotated[
        int | None, typer.Option("--most", metavar="N", min=1, help="Look at no more than N.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count what would be redriven, and to which topics.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Redrive dead letters to their source topics, each once."""
    log = new_log(bootstrap)
    work = Redrive(log, topic, topic, Clients(bootstrap), most=most, of_streams=True)
    work.run(dry_run=dry_run)
    data = {
        "from": topic,
        "sent": work.sent,
        "skipped": work.skipped,
        "to": dict(sorted(work.targets.items())),
        "dry_run": dry_run,
        **({"raised": work.raised} if work.raised else {}),
    }
    Output(as_json=as_json).document(data, _render_redrive)


def _render_redrive(data: dict[str, Any]) -> str:
    done = "would be redriven" if data["dry_run"] else "redriven"
    skipped = f"; {data['skipped']:,} stay: {_WHY_SKIPPED}" if data["skipped"] else ""
    for name, size in data.get("raised", {}).items():
        skipped += f"; max.message.bytes of {escape(name)} is {size} now, for the headers that were added"
    where = ", ".join(f"{count:,} to {escape(name)}" for name, count in data["to"].items())
    return f"{data['sent']:,} dead letters of {data['from']} {done}{': ' + where if where else ''}{skipped}"
