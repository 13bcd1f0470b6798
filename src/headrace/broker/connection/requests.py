"""The requests of one connection: whose they are, which are like the last, and answers in order."""

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from time import perf_counter

from headrace.broker.access import ClientSession
from headrace.broker.apis.answers import Begun, DeferredReply, Reply
from headrace.broker.apis.dispatch import correlation_id_of
from headrace.broker.apis.records import Attempt, KnownProduce, Poll, start_fetch
from headrace.broker.connection.sending import Sender
from headrace.broker.connection.shared import Shared
from headrace.broker.log import SMALL_BYTES
from headrace.broker.metrics import Metrics
from headrace.wire import Api, name_of

__all__ = ["FETCH", "FETCH_NAME", "PRODUCE", "PRODUCE_NAME", "Pipeline", "Requests"]

_numbers = itertools.count(1)
PRODUCE, FETCH = int(Api.PRODUCE), int(Api.FETCH)
PRODUCE_NAME, FETCH_NAME = name_of(PRODUCE), name_of(FETCH)


class Requests:
    """Has the requests of one client served. Event loop only.

    Produce and fetch requests that are like the connection's last are known by their bytes
    (`wire.repeats`), and need not be decoded; they are answered as if they had been.
    """

    __slots__ = (
        *("_shared", "client_host", "last_fetch", "last_produce", "local_address"),
        *("muted_until", "number", "session"),
    )

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.muted_until = 0.0  # the next request waits until then; 0: it does not
        self.number = next(_numbers)  # of the connection
        self.last_fetch: Attempt | None = None
        self.last_produce: KnownProduce | None = None
        self.client_host = ""
        self.local_address: tuple[str, int] = ("", 0)
        self.session: ClientSession | None = None

    # --- serving ------------------------------------------------------------------------------

    def answer(self, frame: bytearray, api_key: int, version: int) -> Awaitable[Reply]:
        """The answer to any request but produce."""
        return self._shared.dispatcher.answer(self, frame, api_key, version)

    def start_produce(self, frame: bytearray, version: int) -> DeferredReply | Begun[DeferredReply]:
        """Appends what a produce request carries; its answer has no reply for acks=0.

        One that has to wait before it appends is awaited first.
        """
        dispatcher, last = self._shared.dispatcher, self.last_produce
        produce = dispatcher.produce
        if last is not None and (parts := produce.parts_of(last, frame, version)) is not None:
            throttle_ms = dispatcher.charge(self, last.client_id, frame)
            alone = len(parts) == 1 and len(frame) <= SMALL_BYTES and self._shared.loop_load.is_idle
            return produce.start_known(last, parts, frame, throttle_ms, alone=alone)
        request = dispatcher.decode_produce(self, frame, version)
        throttle_ms = dispatcher.charge(self, request.client_id, frame)
        self.last_produce = produce.known(request, frame)
        return produce.start(request, frame, throttle_ms)

    def start_fetch(
        self, frame: bytearray, version: int, on_ready: Callable[[], None]
    ) -> Reply | Poll | None:
        """The answer to a fetch, or the wait for it; None if it is to be answered as any other request."""
        attempt = self.last_fetch
        if attempt is None or not attempt.is_same_again(frame, version, correlation_id_of(frame)):
            attempt = self._shared.dispatcher.attempt_fetch(self, frame, version)
            if attempt is None:
                return None
            self.last_fetch = attempt
        return start_fetch(attempt, on_ready)

    # --- throttling ---------------------------------------------------------------------------

    def mute(self, throttle_ms: int) -> None:
        """Has the next request wait, as its answer says: a client that does not heed it waits here."""
        if throttle_ms:
            until = asyncio.get_running_loop().time() + throttle_ms / 1000
            self.muted_until = max(self.muted_until, until)

    async def wait_unmuted(self) -> None:
        while self.muted_until:
            left = self.muted_until - asyncio.get_running_loop().time()
            if left <= 0:
                self.muted_until = 0.0
            else:
                await asyncio.sleep(left)


class Pipeline:
    """Produce requests that are appended and not answered yet, oldest first. Event loop only.

    Many of them share a sync; each is answered when its own is done and those before it are
    answered.
    """

    __slots__ = ("_closed", "_metrics", "_requests", "_sender", "_waiter", "unanswered")

    def __init__(self, requests: Requests, sender: Sender, metrics: Metrics) -> None:
        self._requests = requests
        self._sender = sender
        self._metrics = metrics
        self.unanswered: deque[tuple[float, DeferredReply]] = (
            deque()
        )  # when its turn came, and its answer to be
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def add(self, answer: DeferredReply) -> None:
        """Sends the answer to a produce request once it is there and its turn has come."""
        self.unanswered.append((perf_counter(), answer))
        answer.when_there(self._send_finished)

    async def wait(self, most: int) -> None:
        """Waits until no more than so many produce requests are unanswered."""
        while len(self.unanswered) > most and not self._closed:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def close(self) -> None:
        """The connection is gone: what is synced from now on is answered to nobody."""
        self._closed = True

    def _send_finished(self) -> None:
        while self.unanswered and self.unanswered[0][1].is_there:
            began, answer = self.unanswered.popleft()
            reply = answer.reply
            self._metrics.request_seconds.observe(perf_counter() - began, PRODUCE_NAME)
            if reply is not None and not self._closed:
                self._sender.send(reply.frame)
                self._requests.mute(reply.throttle_ms)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
