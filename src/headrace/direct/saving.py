"""What hooks have done, put on the log: states, dead letters and switches in one transaction.

Deliveries do not wait for it: while one transaction is on its way, what happens meanwhile
gathers for the next. After a crash what was not saved is sent again, under the same ids.
Whoever saves is the only one: a second deliverer of the application fences the first.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headrace.client import Connection
from headrace.direct.hook import state_topic
from headrace.direct.state import HookState, Switch, state_key, switch_key
from headrace.errors import RetriableError
from headrace.views import OutputRecord
from headrace.views.numbered import NumberedProducer

__all__ = ["LARGEST_RECORD_BYTES", "Saved", "Saver"]

# A record is wrapped in headers when it is given up, and must still fit.
LARGEST_RECORD_BYTES = 16 << 20
_OWNER = "hooks"
_SIZES = {"message_max_bytes": LARGEST_RECORD_BYTES}
_BACKOFF_S, _LONGEST_BACKOFF_S = 0.2, 5.0


class Saved(Protocol):
    """Whose state is saved; told when it was."""

    state: HookState

    def saved(self, handled: int) -> None: ...


@dataclass(slots=True)
class _Waiting:
    """What of one hook is to be saved."""

    handled: int = 0
    letters: list[OutputRecord] = field(default_factory=list)


class Saver:
    """The one writer of an application's hooks."""

    def __init__(
        self,
        connection: Connection,
        app: str,
        *,
        on_message: Callable[[str], None],
    ) -> None:
        self._app = app
        self._topic = state_topic(app)
        self._producer = NumberedProducer(connection, f"{app}.hooks", properties=_SIZES)
        self._on_message = on_message
        self._waiting: dict[int, tuple[Saved, _Waiting]] = {}
        self._switches: dict[str, Switch] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._number = 0

    def open(self) -> None:
        """Makes the state ours: nobody else can save from now on. Blocks; call it before `run`."""
        self._number = self._producer.open(_OWNER) + 1

    def changed(self, whose: Saved, *, handled: int = 0, letter: OutputRecord | None = None) -> None:
        """The state is to be saved, and with it a letter; `handled` is given back to `saved` then."""
        _, waiting = self._waiting.setdefault(id(whose), (whose, _Waiting()))
        waiting.handled += handled
        if letter is not None:
            waiting.letters.append(letter)
        self._ring()

    def turn(self, hook: str, switch: Switch) -> None:
        """The hook is to be turned on or off, durably."""
        self._switches[hook] = switch
        self._ring()

    async def wait_saved(self) -> None:
        """Until everything that changed so far is on the log."""
        await self._idle.wait()

    async def run(self) -> None:
        """Saves what changed, for ever; raises FencedError when another deliverer took over."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            waiting, switches = list(self._waiting.values()), self._switches
            self._waiting, self._switches = {}, {}
            await self._write(_records(self._topic, waiting, switches))
            for whose, each in waiting:
                whose.saved(each.handled)
            if not self._wake.is_set():
                self._idle.set()

    def close(self) -> None:
        self._producer.close()

    def _ring(self) -> None:
        self._idle.clear()
        self._wake.set()

    async def _write(self, records: list[OutputRecord]) -> None:
        """Until it is written, once: a batch that was committed although it seemed to fail is found."""
        backoff_s = _BACKOFF_S
        while True:
            try:
                await asyncio.to_thread(self._producer.write, _OWNER, self._number, records)
            except RetriableError as error:
                self._on_message(f"what hooks have done is not saved yet: {error}")
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, _LONGEST_BACKOFF_S)
            else:
                self._number += 1
                return


def _records(
    topic: str, waiting: list[tuple[Saved, _Waiting]], switches: Mapping[str, Switch]
) -> list[OutputRecord]:
    """Composed at once, so that state and letters are of one moment."""
    records = [
        OutputRecord(topic, switch_key(hook), switch.to_bytes(), partition=0)
        for hook, switch in switches.items()
    ]
    for whose, each in waiting:
        records += each.letters
        state = whose.state
        records.append(OutputRecord(topic, state_key(state.hook), state.to_bytes(), partition=0))
    return records
