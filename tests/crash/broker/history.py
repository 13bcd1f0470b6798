"""What happened during a crash campaign, and the invariants that must hold over it.

A value names its producer and a number that only grows, so that every record
is unique and the order in which one producer sent to a partition is known.
"""

from collections import defaultdict
from dataclasses import dataclass, field

Place = tuple[int, int]  # partition, offset


@dataclass(slots=True)
class History:
    """Filled by producers and consumers while the broker crashes, then by reading the whole log back."""

    acked: dict[Place, bytes] = field(default_factory=dict)
    sent: dict[bytes, int] = field(default_factory=dict)  # value to partition, acknowledged or not
    seen: dict[Place, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    acked_twice: list[tuple[Place, bytes, bytes]] = field(default_factory=list)
    log: dict[Place, bytes] = field(default_factory=dict)

    def acknowledge(self, place: Place, value: bytes) -> None:
        before = self.acked.setdefault(place, value)
        if before != value:
            self.acked_twice.append((place, before, value))

    def see(self, place: Place, value: bytes) -> None:
        self.seen[place].add(value)


def broken_invariants(history: History) -> list[str]:
    """The name and first examples of every invariant that does not hold."""
    checks = {
        "AckedRecordsSurvive": acked_records_survive,
        "OffsetsNeverReused": offsets_never_reused,
        "SeenRecordsNeverVanish": seen_records_never_vanish,
        "OrderKeptWithinPartition": order_kept_within_partition,
        "NothingFromNowhere": nothing_from_nowhere,
        "OffsetsAreContiguous": offsets_are_contiguous,
    }
    broken = []
    for name, check in checks.items():
        if violations := check(history):
            broken.append(f"{name}: {len(violations)} violations, such as {violations[:3]}")
    return broken


def acked_records_survive(history: History) -> list[object]:
    """An acknowledged offset holds exactly the acknowledged record."""
    return [
        (place, value, history.log.get(place))
        for place, value in history.acked.items()
        if history.log.get(place) != value
    ]


def offsets_never_reused(history: History) -> list[object]:
    """No offset was ever given to two records: among acknowledgements, live readers and the log."""
    violations: list[object] = list(history.acked_twice)
    for place, values in history.seen.items():
        everyone = values | {history.acked.get(place), history.log.get(place)} - {None}
        if len(everyone) > 1:
            violations.append((place, everyone))
    return violations


def seen_records_never_vanish(history: History) -> list[object]:
    """What a consumer was given during the campaign is still there, acknowledged or not."""
    return [(place, values) for place, values in history.seen.items() if place not in history.log]


def order_kept_within_partition(history: History) -> list[object]:
    """Of one producer and partition, first appearances in the log are in the order of sending."""
    newest: dict[tuple[int, bytes], int] = {}
    known: set[bytes] = set()
    violations: list[object] = []
    for (partition, offset), value in sorted(history.log.items()):
        if value in known:  # sent again after a crash that swallowed the acknowledgement
            continue
        known.add(value)
        producer, number = value.split(b":")[:2]
        before = newest.get((partition, producer), -1)
        if int(number) <= before:
            violations.append((partition, offset, value, before))
        newest[partition, producer] = max(before, int(number))
    return violations


def nothing_from_nowhere(history: History) -> list[object]:
    """Every record in the log was sent, and to that partition."""
    return [(place, value) for place, value in history.log.items() if history.sent.get(value) != place[0]]


def offsets_are_contiguous(history: History) -> list[object]:
    """Offsets of a partition run from 0 without a hole."""
    by_partition: dict[int, list[int]] = defaultdict(list)
    for partition, offset in history.log:
        by_partition[partition].append(offset)
    return [
        (partition, missing)
        for partition, offsets in by_partition.items()
        if (missing := sorted(set(range(max(offsets) + 1)) - set(offsets)))
    ]
