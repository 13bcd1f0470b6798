"""Pages for subscribers: however many wait for a log that does not answer, other requests find a thread."""

import asyncio
import contextlib
import threading

from headrace.client import Identity
from headrace.console.context.context import ConsoleContext
from headrace.console.routes.topics import tail
from headrace.console.settings import ConsoleSettings


class SilentLog:
    """Whoever reads from it waits until it is `heard`."""

    def __init__(self):
        self.heard, self.asked = threading.Event(), threading.Event()

    @contextlib.contextmanager
    def fetcher(self):
        self.asked.set()
        self.heard.wait()
        raise ConnectionError("the log went away")
        yield


def test_subscribers_that_wait_for_the_log_leave_threads_for_everybody_else():
    async def ask():
        context = ConsoleContext.of(
            ConsoleSettings(bootstrap="127.0.0.1:1", threads=4, max_waiting=2), Identity()
        )
        context.clients = log = SilentLog()
        reads = [
            asyncio.create_task(tail._events(context, "t", {0: each}, {0: 100}, (None, None)))
            for each in range(50)
        ]
        try:
            await asyncio.to_thread(log.asked.wait)
            assert await context.workers.run(lambda: "served") == "served"
        finally:
            log.heard.set()
        ended = await asyncio.gather(*reads, return_exceptions=True)
        context.workers.close()
        assert {type(each) for each in ended} == {ConnectionError}, "each had its turn"

    asyncio.run(ask())
