"""Saves the state of hooks on the log: states, dead letters and switches in one transaction.

Deliveries do not wait for it: while one transaction is under way, further changes are
collected for the next. After a crash, what was not saved is sent again, under the same ids.
There is one writer: a second deliverer of the application fences the first.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headrace.client import LARGEST_RECORD_BYTES, Connection
from headrace.client.write import OutputRecord, RecordTooLarge, TransactionalWriter, smaller_limit
from headrace.errors import RetriableError
from headrace.hooks.hook import state_topic
from headrace.hooks.log.dead_letters import shortened_letter
from headrace.hooks.log.state import HookState, HookSwitch, state_key, switch_key

__all__ = ["StateOwner", "StateWriter"]

_OWNER = "hooks"
_BACKOFF_S, _LONGEST_BACKOFF_S = 0.2, 5.0


class StateOwner(Protocol):
    """The owner of a state, which is notified when it has been saved."""

    state: HookState

    def saved(self, handled: int) -> None: ...


@dataclass(slots=True)
class _Waiting:
    """The unsaved changes of one hook."""

    handled: int = 0
    letters: list[OutputRecord] = field(default_factory=list)


class StateWriter:
    """The only writer of the state of an application's hooks."""

    def __init__(
        self,
        connection: Connection,
        app: str,
        *,
        on_message: Callable[[str], None],
    ) -> None:
        self._app = app
        self._topic = state_topic(app)
        self._producer = TransactionalWriter(connection, f"{app}.hooks")
        self._on_message = on_message
        self._waiting: dict[int, tuple[StateOwner, _Waiting]] = {}
        self._switches: dict[str, HookSwitch] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._number = 0

    def open(self) -> None:
        """Takes over the state: no other deliverer can save from now on. Blocks; call it before `run`."""
        self._number = self._producer.open(_OWNER) + 1

    def changed(
        self, owner: StateOwner, *, handled: int = 0, dead_letter: OutputRecord | None = None
    ) -> None:
        """The state is to be saved, together with a dead letter; `handled` is passed to `saved` then."""
        _, waiting = self._waiting.setdefault(id(owner), (owner, _Waiting()))
        waiting.handled += handled
        if dead_letter is not None:
            waiting.letters.append(dead_letter)
        self._wake_up()

    def turn(self, hook: str, switch: HookSwitch) -> None:
        """Turns the hook on or off, durably."""
        self._switches[hook] = switch
        self._wake_up()

    async def wait_saved(self) -> None:
        """Waits until all changes so far are on the log."""
        await self._idle.wait()

    async def run(self) -> None:
        """Saves changes until it is cancelled; raises FencedError when another deliverer takes over."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            waiting, switches = list(self._waiting.values()), self._switches
            self._waiting, self._switches = {}, {}
            await self._write(_records(self._topic, waiting, switches))
            for owner, each in waiting:
                owner.saved(each.handled)
            if not self._wake.is_set():
                self._idle.set()

    def close(self) -> None:
        self._producer.close()

    def _wake_up(self) -> None:
        self._idle.clear()
        self._wake.set()

    async def _write(self, records: list[OutputRecord]) -> None:
        """Writes a batch exactly once, however often it takes: one that seemed to fail may be on the log."""
        backoff_s, most_bytes = _BACKOFF_S, LARGEST_RECORD_BYTES
        while True:
            try:
                await asyncio.to_thread(self._producer.write, _OWNER, self._number, records)
            except RecordTooLarge as refused:  # their topic takes less than it was created for
                most_bytes = smaller_limit(refused, most_bytes)
                records = [_shortened(each, refused.topic, most_bytes) for each in records]
            except RetriableError as error:
                self._on_message(f"the state of hooks is not saved yet: {error}")
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, _LONGEST_BACKOFF_S)
            else:
                self._number += 1
                return


def _records(
    topic: str, waiting: list[tuple[StateOwner, _Waiting]], switches: Mapping[str, HookSwitch]
) -> list[OutputRecord]:
    """Composed at once, so that states and dead letters are consistent."""
    records = [
        OutputRecord(topic, switch_key(hook), switch.to_bytes(), partition=0)
        for hook, switch in switches.items()
    ]
    for owner, each in waiting:
        records += each.letters
        state = owner.state
        records.append(OutputRecord(topic, state_key(state.hook), state.to_bytes(), partition=0))
    return records


def _shortened(record: OutputRecord, topic: str, most_bytes: int) -> OutputRecord:
    return shortened_letter(record, most_bytes) if record.topic == topic else record
