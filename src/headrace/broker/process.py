"""The broker as a process: signals, logging, one event loop."""

import asyncio
from collections.abc import Callable

from headrace.broker.server import Broker
from headrace.broker.settings import BrokerSettings
from headrace.event_loop import log_to_stderr, new_loop, stop_on_signals
from headrace.groups import GroupSettings
from headrace.interpreter import answer_promptly, freeze_start

__all__ = ["run"]


def run(
    settings: BrokerSettings,
    *,
    group_settings: GroupSettings | None = None,
    on_listening: Callable[[Broker], None] | None = None,
) -> int:
    """Serves until SIGTERM or SIGINT, then stops cleanly; the process's exit code."""
    answer_promptly()
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
        freeze_start()
        await stop.wait()
