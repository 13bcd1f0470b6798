"""Runs one Python client as a process: `python -m clients.host NAME BOOTSTRAP`.

Reads a JSON line a request, {"op": …, "args": {…}}, and writes a JSON line an
answer, {"ok": …} or {"error": {"code": …, "message": …}}; ends with its input.
"""

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from clients.driver import Driver, DriverError, Membership, Unsupported, message_from
from clients.lines import pack, unpack


def main(name: str, bootstrap: str) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not end up among the answers
    driver: Driver = importlib.import_module(f"clients.drivers.{name}").open_driver(bootstrap)
    for line in sys.stdin.buffer:
        answers.write(pack(_answer(driver, unpack(line))))
        answers.flush()
    driver.close()


def _answer(driver: Driver, request: dict[str, Any]) -> dict[str, Any]:
    try:
        method = getattr(driver, request["op"])
        return {"ok": method(**_typed(method, request["args"]))}
    except DriverError as error:
        return {"error": {"code": error.code, "message": str(error)}}
    except Unsupported as error:
        return {"unsupported": str(error)}
    except Exception as error:
        traceback.print_exc()
        return {"error": {"code": -1, "message": f"{type(error).__name__}: {error}"}}


def _typed(method: Callable[..., Any], args: dict[str, Any]) -> dict[str, Any]:
    """Arguments as the interface declares them: JSON knows neither int keys nor our classes."""
    typed = dict(args)
    for name in inspect.signature(method).parameters:
        if name in ("start", "before", "offsets"):
            typed[name] = {int(partition): offset for partition, offset in args[name].items()}
        elif name == "messages":
            typed[name] = [message_from(fields) for fields in args[name]]
        elif name == "membership":
            typed[name] = Membership(**args[name])
    return typed


if __name__ == "__main__":
    main(*sys.argv[1:])
