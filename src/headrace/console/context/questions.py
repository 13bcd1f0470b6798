"""Questions to an application's code, asked in a process of their own: the command line on its file.

The console does not load what others wrote, and has no Spark. Where an answer needs either (the state that
an event left, the records behind a row), it runs the command that a person would run, with `--json`.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import orjson

from headrace.console.problems import ProblemError
from headrace.errors import RetriableError

__all__ = ["Questions"]

_LONGEST_ANSWER = 32 << 20
_EXCERPT = 2_000


class Questions:
    """So many processes at a time, each for so long at most; event loop only."""

    def __init__(self, name: str, *, at_a_time: int, timeout_s: float) -> None:
        self._name = name
        self._free = at_a_time
        self._timeout_s = timeout_s

    async def ask(self, *arguments: str) -> Any:
        """What `headrace ARGUMENTS` prints as JSON.

        Raises RetriableError while others are being answered, and ProblemError if the command
        fails, takes too long, or says too much; no process is left when this returns or raises.
        """
        if not self._free:
            raise RetriableError(f"another question ({self._name}) is being answered; try again in a moment")
        self._free -= 1
        try:
            return await self._ask(arguments)
        finally:
            self._free += 1

    async def _ask(self, arguments: Sequence[str]) -> Any:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "headrace",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # so that a Java of its own ends with it
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                answer, said = await asyncio.gather(_read(process.stdout), _read(process.stderr))
                code = await process.wait()
        except TimeoutError:
            raise _unanswered(
                f"there was no answer within {self._timeout_s:.0f} s", "run the command on the command line"
            ) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if code != 0:
            raise _unanswered(_error_in(said), "")
        return orjson.loads(answer)


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    assert stream is not None
    found = bytearray()
    while part := await stream.read(1 << 16):
        found += part
        if len(found) > _LONGEST_ANSWER:
            raise _unanswered("the answer is too long for the console", "run the command on the command line")
    return bytes(found)


def _error_in(said: bytes) -> str:
    """What a command says when it fails: the last line, as JSON."""
    line = said.decode(errors="replace").strip().rpartition("\n")[2]
    try:
        return str(orjson.loads(line)["error"])[:_EXCERPT]
    except (ValueError, KeyError, TypeError):
        return line[:_EXCERPT] or "the command failed without a message"


def _unanswered(detail: str, next_step: str) -> ProblemError:
    return ProblemError(422, detail, next_step, kind="unanswered")
