"""The process of a Connect worker: `python -m headrace.capture.connect.host`.

Speaks JSON lines. The first line in says what to start (`{"heap_mb": …, "kind": …,
"secrets": {…}, "properties": {…}}`), so that secrets are on no command line; the first line out
says that it is ready, and from then on each line in (`{"call": …, "arguments":
[…]}`) is answered by one line out (`{"result": …}` or `{"error": …,
"retriable": …}`). The end of its input, or SIGTERM, ends it in good order: a
parent that dies takes its worker along.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import IO, Any

from headrace.errors import HeadraceError, RetriableError

__all__ = ["main"]

CALLS = (
    "put",
    "remove",
    "restart",
    "pause",
    "resume",
    "stop_connector",
    "read_again",
    "progress",
    "names",
    "status",
)


def main() -> int:
    out = _take_stdout()
    order = json.loads(sys.stdin.readline())
    os.environ.update(order["secrets"])  # before Java reads it; nobody else sees it there
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to act on
    try:
        from headrace.capture.connect.herder import Herder, start_jvm

        start_jvm(order["heap_mb"], order["kind"])
        herder = Herder(order["properties"])
    except HeadraceError as error:
        _say(out, _refusal(error))
        return 1
    try:
        herder.start()
        _wait_until_ready(herder)
        _say(out, {"result": {"cluster_id": herder.cluster_id()}})
        _serve({name: getattr(herder, name) for name in CALLS}, out)
    finally:
        herder.stop()
    return 0


def _take_stdout() -> IO[str]:
    """The answers' own stream; whatever else prints to standard output goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _end(*_: object) -> None:
    raise SystemExit(0)


def _wait_until_ready(herder: Any) -> None:
    while not herder.is_ready():  # it tells nobody; a herder that cannot get ready ends the process
        time.sleep(0.02)


def _serve(calls: dict[str, Callable[..., Any]], out: IO[str]) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = {"result": calls[order["call"]](*order["arguments"])}
        except HeadraceError as error:
            answer = _refusal(error)
        _say(out, answer)


def _refusal(error: HeadraceError) -> dict[str, Any]:
    return {"error": str(error), "retriable": isinstance(error, RetriableError)}


def _say(out: IO[str], answer: dict[str, Any]) -> None:
    out.write(json.dumps(answer) + "\n")
    out.flush()


if __name__ == "__main__":
    sys.exit(main())
