"""The broker as a process: signals, logging, one event loop."""

import asyncio
import gc
import sys
from collections.abc import Callable

from headrace.broker.server import Broker
from headrace.broker.settings import BrokerSettings
from headrace.event_loop import log_to_stderr, new_loop, stop_on_signals
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
    log_to_stderr()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve(settings, group_settings, on_listening))
    return 0


async def _serve(
    settings: BrokerSettings,
    group_settings: GroupSettings | None,
    on_listening: Callable[[Broker], None] | None,
) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop.set, until_stdin_closes=settings.until_stdin_closes)
    async with Broker(settings, group_settings=group_settings).serving() as broker:
        if on_listening is not None:
            on_listening(broker)
        gc.collect()
        gc.freeze()  # what start-up made stays; collections need not look at it again
        gc.set_threshold(*GC_THRESHOLDS)
        await stop.wait()
