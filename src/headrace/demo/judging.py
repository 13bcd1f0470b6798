"""The verdict: what `headrace verify` found of the views, and whether every event is accounted for."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.app.books import READ
from headrace.client import Connection
from headrace.errors import RequestError

__all__ = ["Ends", "ViewVerdict", "complaints", "verify"]

Ends = Mapping[str, Mapping[int, int]]
OUTCOMES = ("on_time", "corrected", "dropped", "filtered", "dead")
_END_S = 30
_MAX_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewVerdict:
    """What was found of one view; `reflected` are next offsets, by topic and partition.

    `failure` says why nothing was found, and is None otherwise.
    """

    view: str
    rows: int
    different: int
    differences: Sequence[Mapping[str, Any]]
    books: Mapping[str, int]
    reflected: Ends
    failure: str | None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ViewVerdict":
        """From what `headrace verify --json` prints of a view."""
        return cls(
            view=data["view"],
            rows=data["rows"],
            different=data["different"],
            differences=data["differences"],
            books=data["books"],
            failure=data["failure"],
            reflected={
                topic: {int(each): offset for each, offset in offsets.items()}
                for topic, offsets in data["offsets"].items()
            },
        )

    @property
    def counted(self) -> int:
        """Events in its books."""
        return sum(self.books.get(name, 0) for name in READ)


def verify(application: Path, folder: Path, connection: Connection) -> list[ViewVerdict]:
    """Recomputes every view from the log, in a process and a Spark of its own; it ends with this one."""
    arguments = [str(application), "--data", str(folder), "--bootstrap", connection.bootstrap_servers]
    with (folder / "verify.messages").open("ab") as messages:
        process = subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-m", "headrace", "verify", *arguments, "--json", "--until-stdin-closes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            env={**os.environ, **connection.environment()},
            start_new_session=True,
        )
    assert process.stdin is not None and process.stdout is not None
    try:
        with process.stdout:
            said = process.stdout.read()
    finally:
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_END_S)
        process.kill()
        process.wait()
    try:
        return [ViewVerdict.from_json(each) for each in json.loads(said)["views"]]
    except ValueError as error:
        raise RequestError(
            f"the views could not be verified (exit code {process.returncode}); "
            f"{folder / 'verify.messages'} says why"
        ) from error


def complaints(
    verdicts: Sequence[ViewVerdict], ends: Ends, starts: Ends, acknowledged: Mapping[str, int]
) -> Iterator[str]:
    """What is wrong, a line each; none if all agree.

    `ends` and `starts` are where the topics end now and ended before the traffic, which
    says of how many events it was told that they are on the log.
    """
    for verdict in verdicts:
        if verdict.failure is not None:
            yield f"UNPROVED {verdict.view}: {verdict.failure}"
            continue
        for each in verdict.differences[:_MAX_SHOWN]:
            yield (
                f"DIFFERENT {verdict.view} {each['key']}: "
                f"served {each['served']}, recomputed {each['recomputed']}"
            )
        on_log = sum(sum(ends[topic].values()) for topic in verdict.reflected)
        if verdict.counted != on_log:
            yield f"UNBALANCED {verdict.view}: {on_log:,} events on the log, {verdict.counted:,} in its books"
    for topic, count in acknowledged.items():
        written = sum(ends[topic].values()) - sum(starts.get(topic, {}).values())
        if written < count:
            yield f"LOST {topic}: {count:,} events were acknowledged, {written:,} are on the log"
