"""Runs the demo from start to end: a shop with live traffic, and the verification of its views."""

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from headrace.client import Connection
from headrace.demo.checks import (
    HookCounts,
    complaints,
    customer_complaints,
    customer_differences,
    hook_complaints,
    hook_counts,
    hook_lines,
    pending_hooks,
    verify_views,
)
from headrace.demo.customers import customers_at
from headrace.demo.display import Display
from headrace.demo.monitor import SEARCH_FILE, ViewMonitor, earlier_headlines
from headrace.demo.search_index import SearchIndex
from headrace.demo.start import APPLICATION, Shop, ShopOptions, demo_folder, open_shop
from headrace.errors import RequestError, RetriableError
from headrace.stopping import hearing

__all__ = ["StopRequest", "run", "stop_request"]

_INTERRUPTED = 130
_LOOK_S = 0.5
_NEWS_S = 10
_CATCH_UP_S = 300
_TO_LOOK_AT = (
    "  Views: revenue_per_minute and best_sellers change while you watch",
    "  Pipeline: how everything is connected, with throughput and delay",
    "  Late and Dead letters: what goes wrong on purpose",
    "  Topics: shop.orders as they arrive; shop.large-orders, sent by webhook and email",
)


def run(
    seconds: float | None = None,
    *,
    rate: int = 200,
    data: Path | None = None,
    connection: Connection | None = None,
    postgres: bool = False,
    as_json: bool = False,
) -> int:
    """Runs the shop for `seconds` after its first result; returns 0 if every view is what the log says.

    Returns 1 if a view differs (the differences are printed). Without `seconds`, or before
    they have passed, Ctrl-C closes the shop and verifies its views. A second one, one before
    the first result, or SIGTERM stops everything without verification: then it returns 0 if
    none had been requested yet, else 130.
    Everything is kept in `data`, where a second start continues, or in a temporary folder that
    is removed. `connection` leads to a log to use instead of starting one; with `postgres`, customers
    live in a PostgreSQL that is started, and not in a SQLite file.
    """
    display = Display(as_json=as_json)
    with stop_request() as stop, demo_folder(data, postgres=postgres) as folder:
        until = "" if data else " (removed at the end)"
        display.say(f"data folder: {folder}{until}", "folder", folder=str(folder))
        options = ShopOptions(folder=folder, rate=rate, connection=connection, postgres=postgres)
        try:
            with open_shop(options, display) as shop:
                if earlier := earlier_headlines(folder):
                    display.block(("the views of the last demo", *earlier), "left")
                _wait_for_first_result(shop)
                stop.accept()
                runs_for_s = display.seconds - shop.running_s
                with contextlib.closing(
                    ViewMonitor(folder, shop.fetcher, shop.starts, runs_for_s)
                ) as monitor:
                    _live(shop, monitor, seconds, stop)
                    return _verify(shop, monitor)
        except KeyboardInterrupt:
            display.say("stopped; nothing was verified", "interrupted")
            # A verification was requested and did not happen.
            return _INTERRUPTED if stop.is_set or seconds is not None else 0


# --- stopping -------------------------------------------------------------------------------------


class StopRequest:
    """What signals have requested so far; they are handled in the main thread, between any two steps.

    Ctrl-C closes an open shop, which then verifies its views. A second one, one before the shop
    is open, SIGTERM and a terminal that closes stop everything at once.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._is_accepted = False

    def accept(self) -> None:
        """From now on the first Ctrl-C is a request to verify."""
        self._is_accepted = True

    def handle(self, number: int, _: object = None) -> None:
        """A signal handler; raises KeyboardInterrupt if everything is to stop at once."""
        if number != signal.SIGINT or not self._is_accepted or self.is_set:
            raise KeyboardInterrupt
        self.is_set = True


@contextlib.contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Within, signals are handled; one that nohup made this process ignore stays ignored."""
    request = StopRequest()
    with hearing(request.handle):
        yield request


# --- running ------------------------------------------------------------------------------------


def _wait_for_first_result(shop: Shop) -> None:
    is_said = False
    while not shop.has_result.is_set():
        shop.supervisor.wait(_LOOK_S)
        if not is_said and shop.totals.behind_s == 0:
            is_said = True
            count = shop.totals.acknowledged.total()
            text = f"traffic: {count:,} events acknowledged; from now on in real time"
            shop.display.say(text, "sending")
    _say_first_result(shop, shop.display.seconds)
    if shop.console is not None:
        shop.display.block((f"open {shop.console}", *_TO_LOOK_AT), "console")


def _say_first_result(shop: Shop, now_s: float) -> None:
    parts = {
        "log": shop.log_s,
        "Spark": shop.running_s - shop.log_s,
        "first batch": now_s - shop.running_s,
    }
    breakdown = ", ".join(f"{name} {part_s:.1f} s" for name, part_s in parts.items())
    shop.display.say(
        f"first result, {now_s:.1f} s after the start ({breakdown})", "first result", parts=parts
    )


def _live(shop: Shop, monitor: ViewMonitor, seconds: float | None, stop: StopRequest) -> None:
    """Shows what the views show, for `seconds` or until Ctrl-C."""
    if seconds is None:
        shop.display.say(
            "Ctrl-C closes the shop and verifies every view; a second Ctrl-C stops at once", "open"
        )
    began = time.monotonic()
    news_at = 0.0
    while not stop.is_set and (seconds is None or time.monotonic() < began + seconds):
        shop.supervisor.wait(_LOOK_S)
        with contextlib.suppress(RetriableError):  # the log is down, and its supervisor restarts it
            monitor.look()
        if time.monotonic() >= news_at:
            news_at = time.monotonic() + _NEWS_S
            shop.display.block(monitor.headlines(), "headlines")
            shop.display.block(monitor.corrections(), "corrections")
    if stop.is_set:
        shop.display.say("closing: verification takes a moment; Ctrl-C again stops at once", "closing")


# --- verifying ----------------------------------------------------------------------------------


def _verify(shop: Shop, monitor: ViewMonitor) -> int:
    """Stops the traffic, lets everything catch up, and compares it with the log and the database."""
    shop.traffic.finish()
    _say_sent(shop)
    _wait_until_followed(shop)
    _wait_until_caught_up(shop, monitor)
    hooks = _wait_until_delivered(shop)
    counts = monitor.record_counts()
    shop.display.say("verifying every view: recomputing it from the log in batch", "verifying")
    verdicts = verify_views(APPLICATION, shop.folder, shop.connection, shop.environment)
    shop.display.verdicts(verdicts, {each.view: monitor.speed(each.view) for each in verdicts})
    shop.display.block(hook_lines(hooks, shop.receivers.of), "deliveries")
    wrong = list(complaints(verdicts, counts, shop.starts, shop.totals.acknowledged))
    wrong += _customers_compared(shop, monitor)
    wrong += hook_complaints(shop.hooks_before, hooks, shop.receivers.of)
    for line in wrong:
        shop.display.say(line, "complaint")
    if not wrong:
        text = "checked: every view is exactly what the log says, and every event is accounted for"
        shop.display.say(text, "checked")
    return 1 if wrong else 0


def _say_sent(shop: Shop) -> None:
    sent = shop.totals
    faults = ", ".join(f"{count:,} {name}" for name, count in sorted(sent.faults.items()))
    shop.display.say(
        f"traffic: stopped; {sent.acknowledged.total():,} events acknowledged, of these {faults}; "
        f"{sent.failed:,} failed; {sent.committed:,} changes of customers committed to their database",
        "sent",
        acknowledged=sent.acknowledged,
        faults=sent.faults,
        failed=sent.failed,
        committed=sent.committed,
    )


def _customers_compared(shop: Shop, monitor: ViewMonitor) -> list[str]:
    """What is wrong with what follows the customers, after a line that says how many there are."""
    with customers_at(shop.database) as database:
        customers = database.rows()
    found = SearchIndex(shop.folder / SEARCH_FILE).rows()
    wrong = list(customer_complaints(customers, found, monitor.tiers()))
    verdict = "different" if wrong else "equal"
    text = f"customers: {len(customers):,} in the database, {len(found):,} in the search index: {verdict}"
    shop.display.say(text, "customers", database=len(customers), index=len(found))
    return wrong


def _wait_until_followed(shop: Shop) -> None:
    """Waits until the search index has the customers of the database, which come to it over the log."""
    index, deadline = SearchIndex(shop.folder / SEARCH_FILE), time.monotonic() + _CATCH_UP_S
    with customers_at(shop.database) as database:
        customers = database.rows()
    while missing := list(customer_differences(customers, index.rows())):
        if time.monotonic() > deadline:
            raise RequestError(
                f"the search index did not follow the database within {_CATCH_UP_S} s: {missing[0]}; "
                "`headrace capture status shop` and `headrace follow list` say more"
            )
        shop.supervisor.wait(_LOOK_S)


def _wait_until_caught_up(shop: Shop, monitor: ViewMonitor) -> None:
    """Waits until every view reflects the end of the log."""
    deadline = time.monotonic() + _CATCH_UP_S
    while behind := monitor.behind():
        if time.monotonic() > deadline:
            raise RequestError(f"the views did not catch up within {_CATCH_UP_S} s: {', '.join(behind)}")
        shop.supervisor.wait(_LOOK_S)


def _wait_until_delivered(shop: Shop) -> HookCounts:
    """Waits until every large order has been delivered."""
    deadline = time.monotonic() + _CATCH_UP_S
    while left := pending_hooks(hooks := hook_counts(shop.connection)):
        if time.monotonic() > deadline:
            raise RequestError(f"the hooks did not finish within {_CATCH_UP_S} s: {', '.join(left)}")
        shop.supervisor.wait(_LOOK_S)
    return hooks
