"""`headrace deadletters`: records that streams could not read, and sending them again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from headrace.cli.connection import Clients, admin
from headrace.cli.following import Range, follow
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from headrace.cli.output import Output, table_text
from headrace.cli.records import ReadRecord, record_to_json
from headrace.cli.values import escape, render_payload
from headrace.client.dead_letters import PREFIXES, Letter, read_letter
from headrace.client.questions import Log
from headrace.client.redrive import Redrive, dead_letter_topics, redriven
from headrace.client.sent_again import SentAgain

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show records that could not be read, and send them again.",
)

DeadTopic = Annotated[str, typer.Argument(metavar="TOPIC", help="Dead-letter topic, such as shop.dead.")]
_SHOWN_VALUE = 200


@app.command("list")
def list_command(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Dead-letter topic; without it, all of them.")
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option("--reason", metavar="TEXT", help="Only reasons and errors that hold this text."),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="TOPIC", help="Only letters that came from this topic.")
    ] = None,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Only letters that were not sent again yet.")
    ] = False,
    most: Annotated[
        int | None, typer.Option("--most", metavar="N", min=1, help="Show no more than so many.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List dead-letter topics, or the letters of one with their reasons."""
    log, output = Log(admin(bootstrap), bootstrap), Output(as_json=as_json)
    if topic is None:
        output.document({"topics": dead_letter_topics(log)}, _render_summaries)
        return
    limits = log.bounds(log.partitions(topic), committed_only=True)
    sent = redriven(log, topic) if waiting else {}
    ranges = [
        Range(
            topic=topic,
            partition=index,
            start=max(bound.start, sent[index].next if index in sent else 0),
            stop=bound.end,
        )
        for (_, index), bound in limits.items()
    ]
    follow(bootstrap, ranges, _Printer(output, reason, source, most, sent), output)


def _render_summaries(data: dict[str, Any]) -> str:
    if not data["topics"]:
        return "no dead-letter topics"
    rows = [(row["topic"], row["offsets"], row["waiting"]) for row in data["topics"]]
    return table_text(("topic", "offsets", "not sent again"), rows)


@dataclass(slots=True)
class _Printer:
    """Shows letters that pass, up to a number."""

    output: Output
    reason: str | None
    source: str | None
    most: int | None
    sent: Mapping[int, SentAgain]
    shown: int = 0

    def __call__(self, record: ReadRecord) -> bool:
        letter = read_letter(record.headers)
        again = record.partition in self.sent and self.sent[record.partition].has(record.offset)
        if letter is not None and not again and self._passes(letter):
            self._show(letter, record)
            self.shown += 1
        return self.most is None or self.shown < self.most

    def _passes(self, letter: Letter) -> bool:
        said = f"{letter.reason or ''} {letter.error or ''}".lower()
        if self.reason is not None and self.reason.lower() not in said:
            return False
        return self.source is None or letter.topic == self.source

    def _show(self, letter: Letter, record: ReadRecord) -> None:
        if self.output.as_json:
            self.output.line(_letter_json(letter, record))
            return
        came = "unknown" if letter.source is None else "{}:{}:{}".format(*letter.source)
        error = f" ({letter.error})" if letter.error else ""
        place = f"{record.topic}:{record.partition}:{record.offset}"
        head = f"{place}  from {came}  {letter.reason or 'no reason given'}{error}"
        value = "null" if record.value is None else render_payload(record.value[:_SHOWN_VALUE])
        key = "" if record.key is None else f"{render_payload(record.key)} = "
        self.output.write(escape(head) + "\n" + _indented(key + value))


def _letter_json(letter: Letter, record: ReadRecord) -> dict[str, Any]:
    """The letter's own words, and the record that it is."""
    shown = record_to_json(record)
    shown["headers"] = [each for each in shown["headers"] if not each["key"].startswith(PREFIXES)]
    return {"dead_letter": letter.to_json(), **shown}


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.split("\n"))


@app.command("redrive")
def redrive(
    topic: DeadTopic,
    most: Annotated[
        int | None, typer.Option("--most", metavar="N", min=1, help="Look at no more than so many.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would be sent and to which topics; send nothing.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Send dead letters back to the topics they came from, each once."""
    log = Log(admin(bootstrap), bootstrap)
    work = Redrive(log, topic, topic, Clients(bootstrap), most=most, of_streams=True)
    work.run(dry_run=dry_run)
    data = {
        "from": topic,
        "sent": work.sent,
        "skipped": work.skipped,
        "to": dict(sorted(work.targets.items())),
        "dry_run": dry_run,
    }
    Output(as_json=as_json).document(data, _render_redrive)


def _render_redrive(data: dict[str, Any]) -> str:
    done = "would be sent again" if data["dry_run"] else "sent again"
    skipped = f"; {data['skipped']:,} do not say where they came from and stay" if data["skipped"] else ""
    where = ", ".join(f"{count:,} to {escape(name)}" for name, count in data["to"].items())
    return f"{data['sent']:,} dead letters of {data['from']} {done}{': ' + where if where else ''}{skipped}"
