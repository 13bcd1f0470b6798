"""Fetch: records from synced extents, waiting for them as long as the client allows.

A reader of committed records gets those below the last stable offset, and is told
which transactions among them were aborted; it leaves those out by itself.

Theory of operation. Most fetches find nothing at first and are answered by the next
commit, so that a record's way to its reader leads through here: no task, future or
timer's turn shall lie between the two. `Poll` therefore waits with callbacks: the
partition whose records were synced calls it, it looks at that partition alone, and
calls its owner if that was enough. Where the disk must be waited for to find an offset,
`look` leaves off before it; `fetch`, the way for every case, then goes on in a thread.

A reader who keeps up has a shorter way still: `connection.follower`.
"""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

from headrace.broker.apis.answers import Reply
from headrace.broker.apis.records.fetch_attempt import Attempt, Fetching, FetchPartition
from headrace.wire import ErrorCode, Request

__all__ = ["FetchApis", "Poll", "start_fetch"]


@dataclasses.dataclass(frozen=True, slots=True)
class FetchApis:
    """Fetches of consumers."""

    fetching: Fetching

    async def fetch(self, request: Request) -> Reply | dict[str, Any]:
        """Answers when `min_bytes` are there, something is wrong, or `max_wait` is over."""
        if request.body.session_epoch > 0:
            # Every fetch names all its partitions: there are no sessions to find.
            return {"error_code": ErrorCode.fetch_session_id_not_found}
        attempt = Attempt(self.fetching, request)
        try:
            await attempt.look_everywhere(attempt.parts)
            if attempt.may_wait:
                await _wait(attempt)
        except BaseException:
            attempt.release()
            raise
        return attempt.reply()


async def _wait(attempt: Attempt) -> None:
    called = asyncio.Event()
    poll = Poll(attempt, called.set)
    try:
        poll.go_on()  # there may be more in some since the others were looked at
        while True:
            while poll.cold:
                await attempt.look_everywhere(poll.cold)
                poll.go_on()
            if poll.is_over or attempt.enough:
                return
            await called.wait()
            called.clear()
            if poll.error is not None:
                raise poll.error
    finally:
        poll.stop()


def start_fetch(attempt: Attempt, on_ready: Callable[[], None]) -> "Reply | Poll | None":
    """The answer, or the wait for it; None if the disk must be read first, which is for `fetch` to do.

    `on_ready` is called when a poll has a reply to be taken, or the disk must be read. Its
    owner calls `taken` then, or `cancel` before.
    """
    try:
        if attempt.look(attempt.parts):
            attempt.release()
            return None
        return Poll(attempt, on_ready) if attempt.may_wait else attempt.reply()
    except BaseException:
        attempt.release()
        raise


class Poll:
    """The wait of a fetch: looks again whenever a partition has more.

    Calls its owner when there is enough, when the time is over, when something failed, or
    when it came upon partitions for which the disk must be read (`cold`); those come first
    then, and what else happens meanwhile is looked at when they are done (`go_on`).
    """

    __slots__ = ("_attempt", "_on_ready", "_timer", "cold", "error", "is_over")

    def __init__(self, attempt: Attempt, on_ready: Callable[[], None]) -> None:
        self._attempt = attempt
        self._on_ready = on_ready
        self.is_over = False
        self.error: Exception | None = None
        self.cold: list[FetchPartition] = []
        # It may run a little early by the clock: that it ran is what counts.
        self._timer = asyncio.get_running_loop().call_later(attempt.wait_ms / 1000, self._end)
        for part in attempt.parts:
            part.poll = self
            part.partition.on_records(part.wake)

    def _end(self) -> None:
        self.is_over = True
        self._on_ready()

    def wake(self, part: FetchPartition) -> None:
        """A partition has more, or so it says. What fails concerns the owner, not the partition."""
        try:
            self._look_at(part)
        except Exception as error:
            self.error = error
        if self.cold or self.error is not None or self._attempt.enough:
            self._on_ready()

    def _look_at(self, part: FetchPartition) -> None:
        if not self.cold and part.partition.readable_end(committed=self._attempt.committed) > part.seen:
            self.cold = self._attempt.look([part])

    def go_on(self) -> None:
        """Looks at what has more by now; what was cold has been looked at."""
        self.cold = []
        for part in self._attempt.parts:
            if not self._attempt.enough:
                self._look_at(part)

    def stop(self) -> None:
        """Waits no more."""
        self._timer.cancel()
        for part in self._attempt.parts:
            part.poll = None
            part.partition.forget(part.wake)

    def taken(self) -> Reply | None:
        """Ends the wait with its answer; None if the disk must be read first, and nothing is held then."""
        self.stop()
        if self.cold or self.error is not None:
            self._attempt.release()
        if self.error is not None:
            raise self.error
        return None if self.cold else self._attempt.reply()

    def cancel(self) -> None:
        """Ends the wait for nobody."""
        self.stop()
        self._attempt.release()
