"""`headrace produce`: lines to records, each counted once it is durable."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from headrace.cli.clients import new_log, new_producer
from headrace.cli.failures import ExitCode, UsageError
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, TopicName
from headrace.cli.records.lines import InputRecord, parse_json_line, parse_text_line
from headrace.cli.records.sender import LineSender
from headrace.cli.terminal import Output, progress
from headrace.errors import RequestError

__all__ = ["produce"]

FAILURES_SHOWN = 10


class CodecOption(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def produce(
    topic: TopicName,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read from this file instead of standard input."),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-k", metavar="TEXT", help="Text that separates key and value in a line."
        ),
    ] = None,
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines",
            help="Lines are JSON objects with key, value, headers, timestamp_ms and partition,"
            " as `tail --json` prints.",
        ),
    ] = False,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", metavar="N", min=0, help="Send to this partition. Default: chosen by key."
        ),
    ] = None,
    codec: Annotated[CodecOption, typer.Option("--codec", help="Compression codec.")] = CodecOption.NONE,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Give up on a record after this long."),
    ] = 30.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> int:
    """Send one record per line, and count those acknowledged."""
    if json_lines and key_separator is not None:
        raise UsageError("--json-lines has the key in each line; omit --key-separator")
    if key_separator == "":
        raise UsageError("--key-separator is empty; pass the text between key and value")
    with _opened(file) as lines:
        # Checked first because some brokers create what a producer names, a misspelt name included.
        log = new_log(bootstrap)
        log.partitions(topic, () if partition is None else (partition,))
        settings = {"compression.type": codec.value, "message.timeout.ms": round(1000 * timeout)}
        sender = LineSender(new_producer(bootstrap, **settings), topic, bootstrap)
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
    lines: BinaryIO, sender: LineSender, separator: bytes | None, json_lines: bool, partition: int | None
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


def _report(sender: LineSender, output: Output) -> None:
    for failure in sender.failures[:FAILURES_SHOWN]:
        output.error(f"line {failure.line}: {failure.cause}", line=failure.line)
    if sender.failed > FAILURES_SHOWN:
        output.error(f"{sender.failed - FAILURES_SHOWN:,} more lines failed")
    if sender.unknown:
        output.note(
            f"{sender.unknown:,} records were sent but not acknowledged; they may have been written or not"
        )
    output.document(
        sender.summary(),
        lambda data: (
            f"{data['acknowledged']:,} of {data['read']:,} records acknowledged by topic {data['topic']}"
        ),
    )
