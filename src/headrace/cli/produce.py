"""`headrace produce`: lines to records, each counted once it is durable."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from headrace.cli.connection import admin, producer
from headrace.cli.exit_codes import ExitCode
from headrace.cli.failures import UsageFaultError
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, TopicName
from headrace.cli.output import Output
from headrace.cli.progress import progress
from headrace.cli.records import InputRecord, parse_json_line, parse_text_line
from headrace.cli.sending import Sender
from headrace.client.questions import Log
from headrace.errors import RequestError

__all__ = ["produce"]

FAILURES_SHOWN = 10


class Codec(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def produce(
    topic: TopicName,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Read this instead of standard input.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-k", metavar="TEXT", help="Splits a line into key and value."),
    ] = None,
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines",
            help="Lines are objects: key, value, headers, timestamp_ms, partition; as `tail --json` writes.",
        ),
    ] = False,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", metavar="N", min=0, help="Send to this one; otherwise the key decides."
        ),
    ] = None,
    codec: Annotated[Codec, typer.Option("--codec", help="Compression.")] = Codec.NONE,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Give a record up after so long.")
    ] = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> int:
    """Send one record a line, and count those the log acknowledged."""
    if json_lines and key_separator is not None:
        raise UsageFaultError("--json-lines carries the key itself; leave --key-separator out")
    if key_separator == "":
        raise UsageFaultError("--key-separator is empty; give the text between key and value")
    with _opened(file) as lines:
        # Checked first because some brokers create what a producer names, a misspelt name included.
        log = Log(admin(bootstrap), bootstrap)
        log.partitions(topic, () if partition is None else (partition,))
        settings = {"compression.type": codec.value, "message.timeout.ms": round(1000 * timeout)}
        sender = Sender(producer(bootstrap, **settings), topic, bootstrap)
        separator = None if key_separator is None else key_separator.encode()
        try:
            _send_all(lines, sender, separator, json_lines, partition)
        finally:
            _report(sender, Output(as_json=as_json))
    return ExitCode.FAILED if sender.failed else ExitCode.DONE


@contextmanager
def _opened(file: Path | None) -> Iterator[BinaryIO]:
    if file is None:
        yield sys.stdin.buffer
        return
    with file.open("rb") as lines:
        yield lines


def _send_all(
    lines: BinaryIO, sender: Sender, separator: bytes | None, json_lines: bool, partition: int | None
) -> None:
    with progress("acknowledged", lambda: sender.acknowledged) as advance:
        for number, raw in enumerate(lines, start=1):
            line = raw.removesuffix(b"\n")
            try:
                record = parse_json_line(line) if json_lines else parse_text_line(line, separator)
            except RequestError as error:
                sender.reject(number, str(error))
                continue
            sender.send(number, record, _partition(record, partition))
            advance()
        sender.wait_acknowledged(advance)


def _partition(record: InputRecord, option: int | None) -> int | None:
    return record.partition if option is None else option


def _report(sender: Sender, output: Output) -> None:
    for failure in sender.failures[:FAILURES_SHOWN]:
        output.error(f"line {failure.line}: {failure.cause}", line=failure.line)
    if sender.failed > FAILURES_SHOWN:
        output.error(f"{sender.failed - FAILURES_SHOWN:,} more lines failed")
    if sender.unknown:
        output.note(
            f"{sender.unknown:,} records were sent but not yet acknowledged; they may or may not be kept"
        )
    output.document(
        sender.summary(),
        lambda data: (
            f"{data['acknowledged']:,} of {data['read']:,} records acknowledged by topic {data['topic']}"
        ),
    )
