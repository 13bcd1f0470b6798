"""The deliverer as a process: signals, an event loop, threads for the clients of the log."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from headrace.direct.deliverer import Deliverer
from headrace.serving import stop_when_told

__all__ = ["run"]

_THREADS = 64  # a reader for each hook blocks one of them most of the time


def run(deliverer: Deliverer, *, on_ready: Callable[[], None] = lambda: None) -> None:
    """Delivers until SIGTERM or SIGINT; raises what the deliverer raises."""
    with asyncio.Runner() as runner:
        runner.run(_run(deliverer, on_ready))


async def _run(deliverer: Deliverer, on_ready: Callable[[], None]) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="headrace-deliver"))
    stop_when_told(stop.set)
    await deliverer.run(stop, on_ready)
