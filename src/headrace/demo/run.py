"""Runs the demonstration from start to verdict: an ordinary application, traffic, and the proof."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace.app.loading import load_app
from headrace.app.running import Running, RunOptions, running
from headrace.app.verifying import Verdict, verify_view
from headrace.client import LATEST, Connection, RawFetcher
from headrace.demo.children import TrafficProcess
from headrace.demo.display import Display
from headrace.errors import ConfigError, RequestError
from headrace.views import Kind

__all__ = ["APPLICATION", "run"]

APPLICATION = Path(__file__).with_name("shop.py")
_INTERRUPTED = 130
_CATCH_UP_S = 180
_MAX_CORRECTIONS_SHOWN = 2


def run(
    seconds: float | None = None,
    *,
    rate: int = 2000,
    data: str | Path | None = None,
    bootstrap: str | None = None,
    seed: int = 7,
) -> int:
    """Lets the shop live for `seconds` after its first result; 0 if every view is what the log says.

    1 says that a view differs (the differences are printed), 130 that Ctrl-C ended it.
    Everything is kept in `data`, an empty folder, or in a temporary one that is removed.
    `bootstrap` names a log to use instead of starting one.
    """
    display = Display()
    with _folder(data) as folder:
        try:
            return _run(20 if seconds is None else seconds, rate, seed, folder, bootstrap, display)
        except KeyboardInterrupt:
            display.say("interrupted; everything was stopped")
            return _INTERRUPTED


def _run(seconds: float, rate: int, seed: int, folder: Path, bootstrap: str | None, display: Display) -> int:
    app = load_app(APPLICATION)
    options = RunOptions(data=folder, bootstrap=bootstrap)
    with running(app, options, on_batch=display.batch, on_message=display.say) as started:
        display.say(f"running {APPLICATION.name}: {', '.join(app.views)}")
        traffic = TrafficProcess(
            bootstrap=started.bootstrap, rate=rate, seed=seed, seconds=seconds, on_progress=display.sent
        )
        with contextlib.closing(contextlib.ExitStack()) as ending:
            ending.callback(traffic.end)
            display.say(f"traffic: {rate:,} events a second (process {traffic.pid})")
            _live(started, display, seconds)
            last = traffic.finish()
        _say_sent(last, display)
        _wait_until_caught_up(started)
        return _verdict(started, last, display)


def _live(started: Running, display: Display, seconds: float) -> None:
    """Waits for the first result and then for `seconds`, showing corrections as they come."""
    seen = 0
    while display.first_result_s is None:
        started.wait(0.5)
    while display.seconds < display.first_result_s + seconds:
        started.wait(1)
        seen = _show_corrections(started, display, seen)


def _show_corrections(started: Running, display: Display, seen: int) -> int:
    store = started.stores["revenue_per_minute"]
    last = store.last_sequence("revenue_per_minute")
    with contextlib.suppress(RequestError):  # more came than is kept: go on with what comes next
        changes = store.changes("revenue_per_minute", since=seen, limit=10_000)
        corrections = [each for each in changes if each.kind == Kind.CORRECTION and each.before is not None]
        for change in corrections[-_MAX_CORRECTIONS_SHOWN:]:
            display.correction(change)
    return last


def _say_sent(last: Mapping[str, Any], display: Display) -> None:
    faults = ", ".join(f"{count:,} {name}" for name, count in sorted(last["faults"].items()))
    total = sum(last["acknowledged"].values())
    display.say(
        f"traffic: stopped; {total:,} events acknowledged, of these {faults}; {last['failed']:,} failed"
    )


def _wait_until_caught_up(started: Running) -> None:
    """Waits until every view reflects the end of the log."""
    for _ in range(_CATCH_UP_S * 2):
        if not _behind(started):
            return
        started.wait(0.5)
    raise RequestError(f"the views did not catch up within {_CATCH_UP_S} s: {', '.join(_behind(started))}")


def _behind(started: Running) -> list[str]:
    behind = []
    with RawFetcher(Connection(bootstrap_servers=started.bootstrap)) as fetcher:
        for planned in started.plan.streams:
            ends = fetcher.offsets(planned.name, LATEST)
            for view in planned.views:
                if view.view.name in started.stores:
                    reflected = started.stores[view.view.name].reflected(view.view.name).offsets
                    if any(reflected.get(planned.name, {}).get(each, 0) < end for each, end in ends.items()):
                        behind.append(view.view.name)
    return behind


def _verdict(started: Running, last: Mapping[str, Any], display: Display) -> int:
    spark = SparkSession.getActiveSession()
    assert spark is not None
    display.say("verifying every view against a batch recomputation from the log")
    verdicts, reflects = [], {}
    for planned in started.plan.streams:
        for number, view in enumerate(planned.views):
            name = view.view.name
            if name in started.stores:
                verdict = verify_view(spark, planned, number, started.stores[name], started.bootstrap)
                verdicts.append(verdict)
                offsets = verdict.reflected.offsets[planned.name]
                reflects[name] = f"{sum(offsets.values()):,} offsets"
    display.verdicts(verdicts, reflects)
    wrong = [*_wrong(verdicts), *_unbalanced(started, verdicts, last)]
    for line in wrong:
        display.say(line)
    if not wrong:
        display.say("checked: every view is exactly what the log says, and every event is accounted for")
    return 1 if wrong else 0


def _wrong(verdicts: list[Verdict]) -> Iterator[str]:
    for verdict in verdicts:
        for each in verdict.differences[:5]:
            key = dict(each.key)
            yield f"DIFFERENT {verdict.view} {key}: served {each.served}, recomputed {each.recomputed}"


def _unbalanced(started: Running, verdicts: list[Verdict], last: Mapping[str, Any]) -> Iterator[str]:
    """Every acknowledged event must be in the books of every view of its stream, once."""
    topics = {view.view.name: planned.name for planned in started.plan.streams for view in planned.views}
    for verdict in verdicts:
        counted = sum(
            verdict.reflected.books.get(name, 0)
            for name in ("on_time", "corrected", "dropped", "filtered", "dead")
        )
        sent = last["acknowledged"].get(topics[verdict.view], 0)
        if counted != sent:
            yield f"UNBALANCED {verdict.view}: {sent:,} events acknowledged, {counted:,} in its books"


@contextlib.contextmanager
def _folder(data: str | Path | None) -> Iterator[Path]:
    if data is None:
        temporary = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return
    folder = Path(data)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; name an empty folder, or none to use a temporary one")
    yield folder
