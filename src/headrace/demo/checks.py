"""The checks at the end.

Views against the log, events against counters, what follows the database against the database, and
deliveries against receivers.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from headrace.app.query import READ
from headrace.client import Connection
from headrace.demo.customers import Customer
from headrace.demo.receivers import Arrived
from headrace.demo.traffic import TOPICS
from headrace.errors import RequestError
from headrace.hooks.log import list_hooks

__all__ = [
    "Ends",
    "HookCounts",
    "TrafficTotals",
    "ViewVerdict",
    "complaints",
    "customer_complaints",
    "customer_differences",
    "hook_complaints",
    "hook_counts",
    "hook_lines",
    "pending_hooks",
    "verify_views",
]

Ends = Mapping[str, Mapping[int, int]]
OUTCOMES = ("on_time", "corrected", "dropped", "filtered", "dead")
HookCounts = Mapping[str, Mapping[str, Any]]
_END_S = 30
_MAX_SHOWN = 5
_DELIVERIES = {"webhook": "webhooks with a valid signature", "email": "emails"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewVerdict:
    """The result of verifying one view; `reflected` are next offsets, by topic and partition.

    `failure` says why it could not be verified, and is None otherwise.
    """

    view: str
    rows: int
    different: int
    differences: Sequence[Mapping[str, Any]]
    counters: Mapping[str, int]
    reflected: Ends
    failure: str | None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ViewVerdict":
        """From what `headrace verify --json` prints of a view."""
        return cls(
            view=data["view"],
            rows=data["rows"],
            different=data["different"],
            differences=data["differences"],
            counters=data["counters"],
            failure=data["failure"],
            reflected={
                topic: {int(each): offset for each, offset in offsets.items()}
                for topic, offsets in data["offsets"].items()
            },
        )

    @property
    def counted(self) -> int:
        """Events in its counters."""
        return sum(self.counters.get(name, 0) for name in READ)


def verify_views(
    application: Path, folder: Path, connection: Connection, environment: Mapping[str, str]
) -> list[ViewVerdict]:
    """Recomputes every view from the log, in a process with a Spark of its own, which ends with this one."""
    arguments = [str(application), "--data", str(folder), "--bootstrap", connection.bootstrap_servers]
    with (folder / "verify.messages").open("ab") as messages:
        process = subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-m", "headrace", "verify", *arguments, "--json", "--until-stdin-closes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            env={**os.environ, **environment, **connection.environment()},
            start_new_session=True,
        )
    assert process.stdin is not None and process.stdout is not None
    try:
        with process.stdout:
            said = process.stdout.read()
    finally:
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_END_S)
        process.kill()
        process.wait()
    try:
        return [ViewVerdict.from_json(each) for each in json.loads(said)["views"]]
    except ValueError as error:
        raise RequestError(
            f"the views could not be verified (exit code {process.returncode}); "
            f"{folder / 'verify.messages'} says why"
        ) from error


def complaints(
    verdicts: Sequence[ViewVerdict],
    counts: Mapping[str, int],
    starts: Ends,
    acknowledged: Mapping[str, int],
) -> Iterator[str]:
    """What is wrong, a line each; none if everything agrees.

    `counts` are the records of each topic, `starts` the ends of the topics before the traffic;
    `acknowledged` is how many events of each topic the log acknowledged to it.
    """
    for verdict in verdicts:
        if verdict.failure is not None:
            yield f"NOT VERIFIED {verdict.view}: {verdict.failure}"
            continue
        for each in verdict.differences[:_MAX_SHOWN]:
            yield (
                f"DIFFERENT {verdict.view} {each['key']}: "
                f"served {each['served']}, recomputed {each['recomputed']}"
            )
        on_log = sum(counts[topic] for topic in verdict.reflected)
        if verdict.counted < on_log or (verdict.counted > on_log and set(verdict.reflected) <= set(TOPICS)):
            counted = verdict.counted
            yield f"MISCOUNTED {verdict.view}: {on_log:,} events on the log, {counted:,} in its counters"
    for topic, count in acknowledged.items():
        written = counts[topic] - sum(starts.get(topic, {}).values())
        if written < count:
            yield f"LOST {topic}: {count:,} events were acknowledged, {written:,} are on the log"


def customer_complaints(
    customers: Sequence[Customer], found: Sequence[Customer], tiers: Mapping[str, int]
) -> Iterator[str]:
    """What is wrong with the search index, and with the view of tiers; the database is the judge."""
    for difference in islice(customer_differences(customers, found), _MAX_SHOWN):
        yield f"DIFFERENT search index {difference}"
    counted = Counter(str(each["tier"]) for each in customers)
    if counted != tiers:
        yield f"DIFFERENT customers_per_tier: served {dict(tiers)}, in the database {dict(counted)}"


def customer_differences(customers: Sequence[Customer], found: Sequence[Customer]) -> Iterator[str]:
    """Customers whom the search index does not have as the database has them."""
    must, has = _by_id(customers), _by_id(found)
    for each in sorted(must.keys() | has.keys()):
        if must.get(each) != has.get(each):
            yield f"{each}: found {has.get(each)}, in the database {must.get(each)}"


def _by_id(customers: Sequence[Customer]) -> dict[str, Customer]:
    return {str(each["customer_id"]): each for each in customers}


# --- traffic --------------------------------------------------------------------------------------


class TrafficTotals:
    """The totals of the traffic over all its processes: each reports its own since it started."""

    def __init__(self) -> None:
        self._reports: dict[int, Mapping[str, Any]] = {}

    def note(self, report: Mapping[str, Any]) -> None:
        self._reports[report["pid"]] = report

    @property
    def acknowledged(self) -> Counter[str]:
        """Events that the log acknowledged, by topic: it must have these, and may have more."""
        return self._total("acknowledged")

    @property
    def faults(self) -> Counter[str]:
        """Those of them with a fault, by fault."""
        return self._total("faults")

    @property
    def failed(self) -> int:
        """Events that the log refused."""
        return sum(report["failed"] for report in self._reports.values())

    @property
    def committed(self) -> int:
        """Changes of customers that their database committed."""
        return sum(report["committed"] for report in self._reports.values())

    @property
    def behind_s(self) -> float | None:
        """How far the traffic is behind the clock; None before its first report."""
        return next((report["behind_s"] for report in reversed(self._reports.values())), None)

    def _total(self, field: str) -> Counter[str]:
        total: Counter[str] = Counter()
        for report in self._reports.values():
            total.update(report[field])
        return total


# --- hooks ----------------------------------------------------------------------------------------


def hook_counts(connection: Connection) -> HookCounts:
    """The application's hooks by their kind; see `headrace hooks list --json` for the fields."""
    found = list_hooks(connection, app="shop")
    return {each["kind"]: each for each in found}


def pending_hooks(hooks: HookCounts) -> list[str]:
    """Hooks that still have something to send, each with what it is doing."""
    return [
        f"{each['hook']} ({each['problem'] or 'delivering'})" for each in hooks.values() if each["behind"]
    ]


def hook_lines(hooks: HookCounts, arrived: Callable[[str], Arrived]) -> Iterator[str]:
    """A line for each hook: what has arrived."""
    for kind, each in hooks.items():
        counts, got = each["counts"], arrived(kind)
        yield (
            f"{each['topic']}: {len(got):,} {_DELIVERIES[kind]} arrived, {got.repeated:,} of them twice; "
            f"{counts['muted']:,} large orders were older than the hook, {counts['dead']:,} were given up"
        )


def hook_complaints(
    before: HookCounts, hooks: HookCounts, arrived: Callable[[str], Arrived]
) -> Iterator[str]:
    """What is wrong: everything delivered since `before` must have arrived, with valid signatures."""
    for kind, each in hooks.items():
        earlier = before[kind]["counts"]["delivered"] if kind in before else 0
        delivered, got = each["counts"]["delivered"] - earlier, arrived(kind)
        if delivered != len(got) or got.refused:
            yield (
                f"NOT DELIVERED {each['hook']}: {delivered:,} counted as delivered, {len(got):,} arrived, "
                f"{got.refused:,} refused by the receiver"
            )
