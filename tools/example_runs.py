"""Runs the examples on the records beside them: for their tests, and for the pictures in the documentation.

`records.jsonl` has a line per record (topic, partition, at, value), and between them
`{"then": "batch"}` where a micro-batch ends and `{"then": "stop"}` where input stops.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.testing import AppRun

EXAMPLES = Path(__file__).parent.parent / "examples"
START = "2026-01-05T09:00:00Z"


def folder(number: int) -> Path:
    """The example of that number."""
    (found,) = EXAMPLES.glob(f"{number:02}_*")
    return found


def lines(number: int) -> Iterator[dict[str, Any]]:
    """What happens, in order."""
    for line in (folder(number) / "records.jsonl").read_text().splitlines():
        yield json.loads(line)


def raw(value: Any) -> bytes:
    """A record's value as bytes; text is taken as it is, and so need not be JSON."""
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def play(run: AppRun, number: int) -> None:
    """Everything that happens in an example."""
    for line in lines(number):
        if "then" in line:
            run.batch() if line["then"] == "batch" else run.stop_input()
        else:
            run.send(line["topic"], raw(line["value"]), partition=line["partition"], at=line["at"])
