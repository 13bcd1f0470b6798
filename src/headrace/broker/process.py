"""The broker as a process: signals, logging, one event loop."""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable

from headrace.broker.server import Broker
from headrace.broker.settings import BrokerSettings
from headrace.groups import GroupSettings

__all__ = ["run"]

# A worker thread that finished a sync must not wait the default 5 ms for the interpreter.
SWITCH_INTERVAL_S = 0.0005
# The default looks for cycles every 700 objects, which is one request in fifty, and so is
# seen in the 99th percentile of the latency.
GC_THRESHOLDS = (20_000, 20, 50)


def run(
    settings: BrokerSettings,
    *,
    group_settings: GroupSettings | None = None,
    on_listening: Callable[[Broker], None] | None = None,
) -> int:
    """Serves until SIGTERM or SIGINT, then stops cleanly; the process's exit code."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve(settings, group_settings, on_listening))
    return 0


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # no wheel for this platform: slower, but complete
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def _serve(
    settings: BrokerSettings,
    group_settings: GroupSettings | None,
    on_listening: Callable[[Broker], None] | None,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    if settings.until_stdin_closes:
        _stop_at_end_of_input(loop, stop)
    async with Broker(settings, group_settings=group_settings).serving() as broker:
        gc.collect()
        gc.freeze()  # what start-up made stays; collections need not look at it again
        gc.set_threshold(*GC_THRESHOLDS)
        if on_listening is not None:
            on_listening(broker)
        await stop.wait()


def _stop_at_end_of_input(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    descriptor = sys.stdin.fileno()

    def on_input() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            stop.set()

    loop.add_reader(descriptor, on_input)
