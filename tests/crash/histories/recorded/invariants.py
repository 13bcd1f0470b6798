"""What must hold over a history, each as a pure function that returns what violates it."""

import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from recorded.history import History, Outcome, Place, Run, Write

__all__ = ["INVARIANTS", "TRANSFORM_GROUP", "violations"]

TRANSFORM_GROUP = "transform"

Found = Iterable[object]


def violations(history: History) -> list[str]:
    """The name and first examples of every invariant that does not hold."""
    broken = []
    for name, check in INVARIANTS.items():
        if found := list(check(history)):
            broken.append(f"{name}: {len(found)} violations, such as {found[:3]}")
    return broken


def lost_write(history: History) -> Found:
    """What was acknowledged, or committed, or once given to a reader of committed records, is there."""
    there = {value for _, value in history.log_committed}
    for write in history.writes.values():
        if _was_promised(history, write) and write.value not in there:
            yield write
    for run in history.runs:
        if run.committed:
            yield from ((run.process, seen) for seen in run.seen if seen.value not in there)


def _was_promised(history: History, write: Write) -> bool:
    if write.transaction is None:
        return write.acked_at is not None
    return history.transactions[write.transaction].outcome is Outcome.COMMITTED


def duplicate(history: History) -> Found:
    """No value is there twice, and of a source record one committed record was made at most."""
    for value, count in Counter(value for _, value in history.log).items():
        if count > 1:
            yield value, count
    made = Counter(source for _, source in _derived(history))
    yield from ((source, count) for source, count in made.items() if count > 1)


def _derived(history: History) -> Iterator[tuple[Place, Place]]:
    """Committed records that were made from others: where they are, and where those are."""
    for place, value in history.log_committed:
        write = history.writes.get(value)
        if write is not None and write.source is not None:
            yield place, write.source


def aborted_read(history: History) -> Found:
    """No reader of committed records is given one of a transaction that was aborted."""
    aborted = {
        value
        for transaction in history.transactions.values()
        if transaction.outcome is Outcome.ABORTED
        for value in transaction.writes
    }
    for run in history.runs:
        if run.committed:
            yield from ((run.process, seen) for seen in run.seen if seen.value in aborted)
    yield from ((place, value) for place, value in history.log_committed if value in aborted)


def read_before_commit(history: History) -> Found:
    """No reader of committed records is given one before its commit was as much as asked for."""
    for run in history.runs:
        if not run.committed:
            continue
        for seen in run.seen:
            write = history.writes.get(seen.value)
            if write is None or write.transaction is None:
                continue
            invoked_at = history.transactions[write.transaction].commit_invoked_at
            if invoked_at is not None and seen.at < invoked_at:
                yield run.process, seen, invoked_at


def torn_transaction(history: History) -> Found:
    """Of a transaction, every record is among the committed ones, in whatever partition, or none."""
    there = {value for _, value in history.log_committed}
    for transaction in history.transactions.values():
        found = [value in there for value in transaction.writes]
        if any(found) and not all(found):
            yield transaction.name, transaction.outcome, dict(zip(transaction.writes, found, strict=True))


def torn_offsets(history: History) -> Found:
    """A committed offset of the transforming group stands exactly behind what was made of its partition."""
    made: dict[tuple[str, int], set[int]] = defaultdict(set)
    for _, source in _derived(history):
        made[source.topic, source.partition].add(source.offset)
    for (group, topic, partition), offset in history.group_offsets.items():
        if group != TRANSFORM_GROUP:
            continue
        due = {
            place.offset
            for place, _ in history.log_committed
            if (place.topic, place.partition) == (topic, partition) and place.offset < offset
        }
        if differing := due ^ made[topic, partition]:
            yield (topic, partition), offset, sorted(differing)[:10]


def non_monotone_poll(history: History) -> Found:
    """While a consumer has a partition, every record it is given comes behind the one before."""
    for run in history.runs:
        for before, seen in zip(run.seen, run.seen[1:], strict=False):
            if seen.offset <= before.offset:
                yield run.process, run.topic, run.partition, before, seen


def skipped_poll(history: History) -> Found:
    """Between what a consumer is given there is nothing that it should have been given.

    And for a group: nothing below its committed offset was given to none of its members.
    """
    committed, uncommitted = _offsets(history.log_committed), _offsets(history.log)
    for run in history.runs:
        visible = (committed if run.committed else uncommitted)[run.topic, run.partition]
        yield from ((run.process, run.topic, run.partition, each) for each in _skipped(run, visible))
    given: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    for run in history.runs:
        if run.group is not None:
            given[run.group, run.topic, run.partition].update(seen.offset for seen in run.seen)
    for (group, topic, partition), offset in history.group_offsets.items():
        due = {each for each in committed[topic, partition] if each < offset}
        if missing := due - given[group, topic, partition]:
            yield group, topic, partition, sorted(missing)[:10]


def _offsets(log: Iterable[tuple[Place, str]]) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place, _ in sorted(log):
        found[place.topic, place.partition].append(place.offset)
    return found


def _skipped(run: Run, visible: list[int]) -> Iterator[tuple[int, int]]:
    """Pairs of offsets between which the run was not given something visible."""
    following = run.start
    for seen in run.seen:
        if following is not None:
            first, last = bisect.bisect_left(visible, following), bisect.bisect_left(visible, seen.offset)
            if first < last:
                yield following, seen.offset
        following = seen.offset + 1


def inconsistent_offsets(history: History) -> Found:
    """An offset has one record, and a record one offset: acknowledged, polled and read in the end."""
    values: dict[Place, set[str]] = defaultdict(set)
    places: dict[str, set[Place]] = defaultdict(set)
    for place, value in _sightings(history):
        values[place].add(value)
        places[value].add(place)
    yield from ((place, found) for place, found in values.items() if len(found) > 1)
    yield from ((value, found) for value, found in places.items() if len(found) > 1)


def _sightings(history: History) -> Iterator[tuple[Place, str]]:
    yield from history.log
    yield from history.log_committed
    for write in history.writes.values():
        if write.offset is not None:
            yield Place(write.topic, write.partition, write.offset), write.value
    for run in history.runs:
        for seen in run.seen:
            yield Place(run.topic, run.partition, seen.offset), seen.value


def out_of_order(history: History) -> Found:
    """Records that one process sent to a partition are there in the order of sending."""
    newest: dict[tuple[str, str, int], tuple[int, str]] = {}
    for place, value in sorted(history.log):
        write = history.writes.get(value)
        if write is None:
            continue
        where = value.split("/")[0], place.topic, place.partition
        before = newest.get(where)
        if before is not None and write.invoked_at < before[0]:
            yield place, before[1], value
        newest[where] = write.invoked_at, value


def from_nowhere(history: History) -> Found:
    """Every record was sent, and to that partition."""
    for place, value in _sightings(history):
        write = history.writes.get(value)
        if write is None or (write.topic, write.partition) != (place.topic, place.partition):
            yield place, value


def zombie(history: History) -> Found:
    """After a newer instance took over, the former one commits nothing and gets nothing acknowledged."""
    superseded = {name: _superseded_at(history, name) for name in history.inits}
    there = {value for _, value in history.log_committed}
    for transaction in history.transactions.values():
        over_at = superseded.get(transaction.instance)
        if over_at is None:
            continue
        asked_at = transaction.commit_invoked_at
        if asked_at is not None and asked_at > over_at and any(v in there for v in transaction.writes):
            yield "committed", transaction.name
        for value in transaction.writes:
            write = history.writes[value]
            if write.invoked_at > over_at and write.acked_at is not None:
                yield "acknowledged", write


def _superseded_at(history: History, instance: str) -> int | None:
    """When an instance of the same id that certainly came later had taken over."""
    mine = history.inits[instance]
    if mine.done_at is None:
        return None
    later = (
        each.done_at
        for each in history.inits.values()
        if each.transactional_id == mine.transactional_id
        and each.done_at is not None
        and each.invoked_at > mine.done_at
    )
    return min(later, default=None)


def fenced_by_nobody(history: History) -> Found:
    """Whoever is told that a newer instance took over was really succeeded by one, or by an attempt."""
    for init in history.inits.values():
        successors = (
            each
            for each in history.inits.values()
            if each.transactional_id == init.transactional_id
            and each is not init
            and (each.done_at is None or each.done_at > init.invoked_at)
        )
        if init.fenced and next(successors, None) is None:
            yield init


def refused(history: History) -> Found:
    """Nobody who kept to the rules was turned away."""
    yield from history.refusals


INVARIANTS: dict[str, Callable[[History], Found]] = {
    "LostWrite": lost_write,
    "Duplicate": duplicate,
    "AbortedRead": aborted_read,
    "ReadBeforeCommit": read_before_commit,
    "TornTransaction": torn_transaction,
    "TornOffsets": torn_offsets,
    "NonMonotonePoll": non_monotone_poll,
    "SkippedPoll": skipped_poll,
    "InconsistentOffsets": inconsistent_offsets,
    "OutOfOrder": out_of_order,
    "FromNowhere": from_nowhere,
    "Zombie": zombie,
    "FencedByNobody": fenced_by_nobody,
    "Refused": refused,
}
