"""Whether everybody was told of large orders: what the hooks counted against what the receivers got."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headrace.client import Connection
from headrace.demo.receivers import Arrived
from headrace.direct.listing import list_hooks

__all__ = ["Told", "hook_counts", "not_told", "told_lines", "untold"]

Told = Mapping[str, Mapping[str, Any]]
_WORDS = {"webhook": "webhooks with a right signature", "email": "mails"}


def hook_counts(connection: Connection) -> Told:
    """The application's hooks by their kind; see `headrace hooks list --json` for the fields."""
    found = list_hooks(connection, app="shop")
    return {each["kind"]: each for each in found}


def untold(told: Told) -> list[str]:
    """Hooks that still have something to send."""
    return [f"{each['hook']} ({each['problem'] or 'on its way'})" for each in told.values() if each["behind"]]


def told_lines(told: Told, arrived: Callable[[str], Arrived]) -> Iterator[str]:
    """What there is to say of each hook."""
    for kind, each in told.items():
        counts, got = each["counts"], arrived(kind)
        yield (
            f"{each['topic']}: {len(got):,} {_WORDS[kind]} arrived, {got.repeated:,} of them twice; "
            f"{counts['muted']:,} large orders were older than the hook, {counts['dead']:,} were given up"
        )


def not_told(before: Told, told: Told, arrived: Callable[[str], Arrived]) -> Iterator[str]:
    """What was counted as delivered since `before` must have arrived, and all of it well signed."""
    for kind, each in told.items():
        earlier = before[kind]["counts"]["delivered"] if kind in before else 0
        delivered, got = each["counts"]["delivered"] - earlier, arrived(kind)
        if delivered != len(got) or got.refused:
            yield (
                f"NOT TOLD {each['hook']}: {delivered:,} counted as delivered, {len(got):,} arrived, "
                f"{got.refused:,} refused by the receiver"
            )
