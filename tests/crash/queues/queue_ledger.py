"""What the consumers of a queue wrote down, and the invariants over it."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Place = tuple[int, int]
"""A partition and an offset."""


@dataclass
class Ledger:
    """All that is known from outside after a campaign.

    `confirmed` are acceptances that the broker confirmed, `tried` those that a consumer
    asked for, `dead` the dead letters by where they say they come from.
    """

    produced: Mapping[Place, bytes]
    confirmed: Counter[Place] = field(default_factory=Counter)
    tried: set[Place] = field(default_factory=set)
    dead: Counter[Place] = field(default_factory=Counter)
    dead_values: dict[Place, bytes] = field(default_factory=dict)

    def read(self, files: Iterable[Path]) -> None:
        """Takes in what consumers wrote; a kill may have cut the last line."""
        for file in files:
            for line in file.read_bytes().splitlines():
                try:
                    what, accepted = json.loads(line)
                except ValueError:
                    continue
                places = [(int(index), offset) for index, offsets in accepted.items() for offset in offsets]
                if what == "ok":
                    self.confirmed.update(places)
                else:
                    self.tried.update(places)


def broken_invariants(ledger: Ledger) -> list[str]:
    """What does not hold, by name; empty if all is well."""
    problems = []
    produced = set(ledger.produced)
    twice = [place for place, count in ledger.confirmed.items() if count > 1]
    if twice:
        problems.append(f"AcceptedOnce: confirmed more than once: {sorted(twice)[:10]}")
    both = set(ledger.confirmed) & set(ledger.dead)
    if both:
        problems.append(f"AcceptedOrDead: accepted and dead-lettered: {sorted(both)[:10]}")
    repeated = [place for place, count in ledger.dead.items() if count > 1]
    if repeated:
        problems.append(f"OneDeadLetter: dead-lettered more than once: {sorted(repeated)[:10]}")
    lost = produced - set(ledger.confirmed) - set(ledger.dead) - ledger.tried
    if lost:
        problems.append(f"NoneLost: {len(lost)} neither accepted nor dead-lettered: {sorted(lost)[:10]}")
    strange = (set(ledger.confirmed) | set(ledger.dead)) - produced
    if strange:
        problems.append(f"NothingInvented: {sorted(strange)[:10]}")
    altered = [
        place for place, value in ledger.dead_values.items() if value != ledger.produced.get(place, value)
    ]
    if altered:
        problems.append(f"DeadLettersAreTheRecords: {sorted(altered)[:10]}")
    return problems
