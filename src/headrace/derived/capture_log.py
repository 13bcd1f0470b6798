"""What a capture has told the log of itself: its declaration, its status, and how far it has written."""

import time
from collections.abc import Callable
from itertools import islice
from types import TracebackType
from typing import Self

from headrace.capture import CaptureSpec, CaptureState, Catalog, parse_state, state_of, state_topic
from headrace.client import EARLIEST, LATEST, Connection, RawFetcher
from headrace.errors import RequestError
from headrace.records import decode_columns

__all__ = ["CaptureLog"]

_LOOK_S = 0.1
_NEXT_STEP = {
    "paused": "`headrace capture resume {}`, then verify it again",
    "stopped": "`headrace capture status {}` shows why",
    "not running": "`headrace capture run {}` runs it",
}


class CaptureLog:
    """One capture, as the log has it now. For one thread."""

    def __init__(self, connection: Connection, catalog: Catalog, name: str, timeout_s: float) -> None:
        self.name = name
        self._catalog, self._timeout_s = catalog, timeout_s
        self._fetcher = RawFetcher(connection)
        self._next, self._state = 0, CaptureState()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fetcher.close()

    def spec(self) -> CaptureSpec:
        found = self._catalog.refresh()
        if self.name not in found:
            there = ", ".join(sorted(found)) or "none"
            raise RequestError(f"no capture {self.name!r}; the captures are: {there}")
        spec = found[self.name].spec
        assert spec is not None, "refresh leaves out what has none"
        return spec

    def wait(self, is_enough: Callable[[CaptureState], bool], lacks: str) -> CaptureState:
        """The state once it is enough; `lacks` says what is not, for messages."""
        until = time.monotonic() + self._timeout_s
        while True:
            state = self._newest()
            if state.position is not None and is_enough(state):
                return state
            self.require_not(*_NEXT_STEP, lacks=lacks)
            if time.monotonic() >= until:
                raise RequestError(
                    f"{lacks}, also after {self._timeout_s:g} s: `headrace capture status {self.name}` shows "
                    "how far it is and whether it runs; --timeout allows longer"
                )
            time.sleep(_LOOK_S)

    def _newest(self) -> CaptureState:
        """The last state that was committed."""
        topic = state_topic(self.name)
        if topic not in self._fetcher.layouts([topic]):
            return self._state
        first, end = self._fetcher.offsets(topic, EARLIEST)[0], self._fetcher.offsets(topic, LATEST)[0]
        start = max(self._next, first)
        for run in self._fetcher.fetch(topic, 0, start, end):
            values = decode_columns(run, start_offset=start, end_offset=end, columns=("value",))["value"]
            for value in islice(values.to_pylist(), max(len(values) - 1, 0), None):
                self._state = parse_state(value)
        self._next = end
        return self._state

    def require_not(self, *states: str, lacks: str) -> None:
        """RequestError if it is in one of these states, in which nothing more will come."""
        entry = self._catalog.refresh().get(self.name)
        if entry is None:
            raise RequestError(f"capture {self.name} was removed")
        said = entry.status or {}
        state = state_of(entry.status, time.time() * 1000, paused=entry.switch.paused)
        if said.get("state") == "stopped" and not entry.switch.paused:
            state = "stopped"  # which it says once
        if state not in states:
            return
        why = f" ({said['error']})" if state == "stopped" and said.get("error") else ""
        raise RequestError(f"{lacks}, and it is {state}{why}: {_NEXT_STEP[state].format(self.name)}")
