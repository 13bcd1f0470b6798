"""Runs the demonstration from start to verdict: a shop that lives, and the proof at its end."""

import contextlib
import time
from pathlib import Path

from headrace.client import Connection
from headrace.demo.closing import Closing, closing
from headrace.demo.display import Display
from headrace.demo.folders import demo_folder
from headrace.demo.judging import complaints, verify
from headrace.demo.opening import APPLICATION, Opening, Shop, open_shop
from headrace.demo.telling import Told, hook_counts, not_told, told_lines, untold
from headrace.demo.watching import Watch, kept_headlines, log_ends
from headrace.errors import RequestError, RetriableError

__all__ = ["run"]

_INTERRUPTED = 130
_LOOK_S = 0.5
_NEWS_S = 10
_CATCH_UP_S = 300
_TO_LOOK_AT = (
    "  Views: revenue_per_minute moves while you look, and best_sellers",
    "  Pipeline: how it hangs together, with throughput and delay",
    "  Late and Dead letters: what goes wrong on purpose",
    "  Topics: shop.orders as they come; shop.large-orders, of which a webhook and a mail tell",
)


def run(
    seconds: float | None = None,
    *,
    rate: int = 200,
    data: Path | None = None,
    connection: Connection | None = None,
    as_json: bool = False,
) -> int:
    """Lets the shop live for `seconds` after its first result; 0 if every view is what the log says.

    1 says that a view differs (the differences are printed). Without `seconds`, or before
    they are over, Ctrl-C closes the shop and leads to the same proof; 130 says that a second
    one, or one before the first result, or SIGTERM ended everything and nothing was proved.
    Everything is kept in `data`, where a second start goes on, or in a temporary folder that
    is removed. `connection` leads to a log to use instead of starting one.
    """
    display = Display(as_json=as_json)
    with closing() as heard, demo_folder(data) as folder:
        until = "" if data else ", which is removed at the end"
        display.say(f"everything is kept in {folder}{until}", "folder", folder=str(folder))
        try:
            with open_shop(Opening(folder=folder, rate=rate, connection=connection), display) as shop:
                if kept := kept_headlines(folder):
                    display.block(("the views as they were left", *kept), "left")
                _wait_for_first_result(shop)
                heard.open()
                runs_for_s = display.seconds - shop.running_s
                with contextlib.closing(Watch(folder, shop.fetcher, shop.starts, runs_for_s)) as watch:
                    _live(shop, watch, seconds, heard)
                    return _prove(shop, watch)
        except KeyboardInterrupt:
            display.say("interrupted; nothing was verified", "interrupted")
            return _INTERRUPTED


# --- living -------------------------------------------------------------------------------------


def _wait_for_first_result(shop: Shop) -> None:
    is_told = False
    while not shop.has_result.is_set():
        shop.keeper.wait(_LOOK_S)
        if not is_told and shop.sent.behind_s == 0:
            is_told = True
            count = shop.sent.acknowledged.total()
            text = f"traffic: {count:,} events acknowledged; from here on it keeps to the clock"
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
    told = ", ".join(f"{name} {part_s:.1f} s" for name, part_s in parts.items())
    shop.display.say(f"first result, {now_s:.1f} s after the start ({told})", "first result", parts=parts)


def _live(shop: Shop, watch: Watch, seconds: float | None, heard: Closing) -> None:
    """Shows what the views show, for `seconds` or until Ctrl-C."""
    if seconds is None:
        shop.display.say("Ctrl-C closes the shop and proves every view; a second one ends at once", "open")
    began = time.monotonic()
    news_at = 0.0
    while not heard.is_asked and (seconds is None or time.monotonic() < began + seconds):
        shop.keeper.wait(_LOOK_S)
        with contextlib.suppress(RetriableError):  # the log is away, which its keeper sees to
            watch.look()
        if time.monotonic() >= news_at:
            news_at = time.monotonic() + _NEWS_S
            shop.display.block(watch.headlines(), "headlines")
            shop.display.block(watch.corrections(), "corrections")
    if heard.is_asked:
        shop.display.say("closing: the proof takes a moment; Ctrl-C again ends at once", "closing")


# --- proving ------------------------------------------------------------------------------------


def _prove(shop: Shop, watch: Watch) -> int:
    """Stops the traffic, lets the views catch up, and holds them against the log."""
    shop.traffic.finish()
    _say_sent(shop)
    _wait_until_caught_up(shop, watch)
    told = _wait_until_told(shop)
    ends = log_ends(shop.fetcher)
    shop.display.say("verifying every view against a batch recomputation from the log", "verifying")
    verdicts = verify(APPLICATION, shop.folder, shop.connection)
    shop.display.verdicts(verdicts, {each.view: watch.pace(each.view) for each in verdicts})
    shop.display.block(told_lines(told, shop.receivers.of), "told")
    wrong = list(complaints(verdicts, ends, shop.starts, shop.sent.acknowledged))
    wrong += not_told(shop.told_before, told, shop.receivers.of)
    for line in wrong:
        shop.display.say(line, "complaint")
    if not wrong:
        text = "checked: every view is exactly what the log says, and every event is accounted for"
        shop.display.say(text, "checked")
    return 1 if wrong else 0


def _say_sent(shop: Shop) -> None:
    sent = shop.sent
    faults = ", ".join(f"{count:,} {name}" for name, count in sorted(sent.faults.items()))
    shop.display.say(
        f"traffic: stopped; {sent.acknowledged.total():,} events acknowledged, of these {faults}; "
        f"{sent.failed:,} failed",
        "sent",
        acknowledged=sent.acknowledged,
        faults=sent.faults,
        failed=sent.failed,
    )


def _wait_until_caught_up(shop: Shop, watch: Watch) -> None:
    """Waits until every view reflects the end of the log."""
    deadline = time.monotonic() + _CATCH_UP_S
    while behind := watch.behind():
        if time.monotonic() > deadline:
            raise RequestError(f"the views did not catch up within {_CATCH_UP_S} s: {', '.join(behind)}")
        shop.keeper.wait(_LOOK_S)


def _wait_until_told(shop: Shop) -> Told:
    """Waits until nobody remains to be told of a large order."""
    deadline = time.monotonic() + _CATCH_UP_S
    while left := untold(told := hook_counts(shop.connection)):
        if time.monotonic() > deadline:
            raise RequestError(f"not everybody was told within {_CATCH_UP_S} s: {', '.join(left)}")
        shop.keeper.wait(_LOOK_S)
    return told
