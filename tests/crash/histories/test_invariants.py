"""Every invariant notices what it is there to notice, and a sound history breaks none."""

from collections.abc import Callable
from pathlib import Path

import pytest
from recorded.history import History, Init, Outcome, Place, Run, Seen, Transaction, Write, history_of
from recorded.invariants import INVARIANTS, TRANSFORM_GROUP, violations
from recorded.recorder import Recorder, read_events


def write(value: str, offset: int, *, at: int, partition: int = 0, **more: object) -> Write:
    topic = "derived" if "source" in more else "source"
    return Write(
        value=value,
        topic=topic,
        partition=partition,
        offset=offset,
        invoked_at=at,
        acked_at=at + 1,
        **more,  # type: ignore[arg-type]
    )


def sound() -> History:
    """Two plain records, a committed and an aborted transaction over two partitions, and a derived record."""
    writes = [
        write("i.0/-/0", 0, at=10),
        write("i.0/-/1", 1, at=12),
        write("t.0/0/0", 2, at=22, transaction="t.0/0"),
        write("t.0/0/1", 0, at=23, partition=1, transaction="t.0/0"),
        write("t.0/1/0", 4, at=42, transaction="t.0/1"),
        write("x.0/0/0", 0, at=62, transaction="x.0/0", source=Place("source", 0, 0)),
    ]
    history = History()
    history.writes = {each.value: each for each in writes}
    history.transactions = {
        "t.0/0": transaction("t.0/0", "t.0", ["t.0/0/0", "t.0/0/1"], asked_at=30),
        "t.0/1": Transaction(name="t.0/1", instance="t.0", writes=["t.0/1/0"]),
        "x.0/0": transaction("x.0/0", "x.0", ["x.0/0/0"], asked_at=70),
    }
    history.inits = {name: init(name, at=1) for name in ("t.0", "x.0")}
    history.log = [(Place(each.topic, each.partition, each.offset or 0), each.value) for each in writes]
    history.log_committed = [each for each in history.log if each[1] != "t.0/1/0"]
    history.runs = [
        run("live", [(35, 0, "i.0/-/0"), (35, 1, "i.0/-/1"), (35, 2, "t.0/0/0")], start=0),
        run("dirty", [(15, 1, "i.0/-/1"), (25, 2, "t.0/0/0"), (50, 4, "t.0/1/0")], committed=False),
        run("x.0", [(60, 0, "i.0/-/0")], group=TRANSFORM_GROUP),
        run("m.0", [(60, 0, "i.0/-/0"), (61, 1, "i.0/-/1")], group="members"),
    ]
    history.group_offsets = {(TRANSFORM_GROUP, "source", 0): 1, ("members", "source", 0): 2}
    return history


def transaction(name: str, instance: str, writes: list[str], *, asked_at: int) -> Transaction:
    return Transaction(
        name=name,
        instance=instance,
        writes=writes,
        commit_invoked_at=asked_at,
        outcome=Outcome.COMMITTED,
    )


def init(instance: str, *, at: int) -> Init:
    name = instance.split(".")[0]
    return Init(instance=instance, transactional_id=name, invoked_at=at, done_at=at + 1)


def run(
    process: str,
    seen: list[tuple[int, int, str]],
    *,
    committed: bool = True,
    start: int | None = None,
    group: str | None = None,
) -> Run:
    given = [Seen(*each) for each in seen]
    return Run(
        process=process,
        topic="source",
        partition=0,
        committed=committed,
        start=start,
        group=group,
        seen=given,
    )


def gone(history: History, value: str) -> None:
    history.log = [each for each in history.log if each[1] != value]
    history.log_committed = [each for each in history.log_committed if each[1] != value]


def lose_an_acknowledged_record(history: History) -> None:
    gone(history, "i.0/-/1")


def lose_a_committed_transaction(history: History) -> None:
    gone(history, "t.0/0/0")
    gone(history, "t.0/0/1")


def lose_what_was_read(history: History) -> None:
    history.writes["i.0/-/1"].acked_at = None
    gone(history, "i.0/-/1")


def double_a_record(history: History) -> None:
    history.log.append((Place("source", 0, 9), "i.0/-/0"))


def process_a_record_twice(history: History) -> None:
    again = write("x.0/1/0", 2, at=80, transaction="x.0/1", source=Place("source", 0, 0))
    history.writes[again.value] = again
    history.transactions["x.0/1"] = transaction("x.0/1", "x.0", [again.value], asked_at=85)
    for log in (history.log, history.log_committed):
        log.append((Place("derived", 0, 2), again.value))


def give_an_aborted_record(history: History) -> None:
    history.runs[0].seen.append(Seen(50, 4, "t.0/1/0"))


def keep_an_aborted_record(history: History) -> None:
    history.log_committed.append((Place("source", 0, 4), "t.0/1/0"))


def give_a_record_before_its_commit(history: History) -> None:
    history.runs[0].seen[-1] = Seen(29, 2, "t.0/0/0")


def tear_a_transaction(history: History) -> None:
    history.transactions["t.0/0"].outcome = Outcome.UNKNOWN
    gone(history, "t.0/0/1")


def commit_an_offset_without_its_record(history: History) -> None:
    history.group_offsets[TRANSFORM_GROUP, "source", 0] = 2


def commit_a_record_without_its_offset(history: History) -> None:
    history.group_offsets[TRANSFORM_GROUP, "source", 0] = 0


def go_back(history: History) -> None:
    history.runs[0].seen.append(Seen(36, 1, "i.0/-/1"))


def give_the_same_again(history: History) -> None:
    history.runs[0].seen.append(Seen(36, 2, "t.0/0/0"))


def skip_a_record(history: History) -> None:
    del history.runs[0].seen[1]


def skip_the_first_record(history: History) -> None:
    del history.runs[0].seen[0]


def skip_an_uncommitted_record(history: History) -> None:
    del history.runs[1].seen[1]


def commit_past_a_record_that_no_member_got(history: History) -> None:
    history.group_offsets["members", "source", 0] = 3


def give_another_record_at_an_offset(history: History) -> None:
    history.writes["i.0/-/2"] = write("i.0/-/2", 7, at=14)
    history.runs[1].seen.append(Seen(51, 4, "i.0/-/2"))


def acknowledge_at_another_offset(history: History) -> None:
    history.writes["i.0/-/1"].offset = 8


def reorder(history: History) -> None:
    history.writes["i.0/-/0"].invoked_at = 13


def invent_a_record(history: History) -> None:
    history.log.append((Place("source", 0, 9), "i.0/-/77"))


def write_to_another_partition(history: History) -> None:
    history.writes["i.0/-/1"].partition = 1


def let_a_zombie_commit(history: History) -> None:
    history.inits["t.1"] = init("t.1", at=26)


def let_a_zombie_write(history: History) -> None:
    history.inits["t.1"] = init("t.1", at=35)


def fence_without_a_reason(history: History) -> None:
    history.inits["t.0"].fenced = "a newer instance took over"


def refuse(history: History) -> None:
    history.refusals.append("i.0: out of order")


SPOILED = [
    (lose_an_acknowledged_record, "LostWrite"),
    (lose_a_committed_transaction, "LostWrite"),
    (lose_what_was_read, "LostWrite"),
    (double_a_record, "Duplicate"),
    (process_a_record_twice, "Duplicate"),
    (give_an_aborted_record, "AbortedRead"),
    (keep_an_aborted_record, "AbortedRead"),
    (give_a_record_before_its_commit, "ReadBeforeCommit"),
    (tear_a_transaction, "TornTransaction"),
    (commit_an_offset_without_its_record, "TornOffsets"),
    (commit_a_record_without_its_offset, "TornOffsets"),
    (go_back, "NonMonotonePoll"),
    (give_the_same_again, "NonMonotonePoll"),
    (skip_a_record, "SkippedPoll"),
    (skip_the_first_record, "SkippedPoll"),
    (skip_an_uncommitted_record, "SkippedPoll"),
    (commit_past_a_record_that_no_member_got, "SkippedPoll"),
    (give_another_record_at_an_offset, "InconsistentOffsets"),
    (acknowledge_at_another_offset, "InconsistentOffsets"),
    (reorder, "OutOfOrder"),
    (invent_a_record, "FromNowhere"),
    (write_to_another_partition, "FromNowhere"),
    (let_a_zombie_commit, "Zombie"),
    (let_a_zombie_write, "Zombie"),
    (fence_without_a_reason, "FencedByNobody"),
    (refuse, "Refused"),
]


def test_a_sound_history_breaks_no_invariant():
    assert violations(sound()) == []


@pytest.mark.parametrize(("spoil", "name"), SPOILED)
def test_a_spoiled_history_breaks_the_invariant_that_names_it(spoil: Callable[[History], None], name: str):
    history = sound()
    spoil(history)
    assert list(INVARIANTS[name](history))


def test_every_invariant_is_shown_to_notice_something():
    assert {name for _, name in SPOILED} == set(INVARIANTS)


def test_one_who_was_really_succeeded_may_be_fenced():
    history = sound()
    history.inits["t.0"].fenced = "a newer instance took over"
    history.inits["t.1"] = init("t.1", at=90)
    assert violations(history) == []


def test_a_history_is_read_from_the_files_of_killed_processes(tmp_path: Path):
    path = tmp_path / "t.0.jsonl"
    recorder = Recorder(path, "t.0")
    recorder.invoke("init", instance="t.0", txid="t")
    recorder.ok("init", instance="t.0", txid="t")
    for number, commit in enumerate([True, False, True]):
        recorder.invoke("begin", txn=f"t.0/{number}", instance="t.0")
        value = f"t.0/{number}/0"
        recorder.invoke("send", topic="source", partition=1, value=value, txn=f"t.0/{number}")
        recorder.ok("send", value=value, offset=number)
        recorder.invoke("end", txn=f"t.0/{number}", commit=commit)
        if number < 2:
            recorder.ok("end", txn=f"t.0/{number}", commit=commit)
    with path.open("ab") as file:
        file.write(b'{"at": 99, "process": "t.0", "ty')  # a kill came
    history = history_of(read_events(path))
    outcomes = [each.outcome for each in history.transactions.values()]
    assert outcomes == [Outcome.COMMITTED, Outcome.ABORTED, Outcome.UNKNOWN]
    assert history.writes["t.0/1/0"].offset == 1
    assert history.inits["t.0"].done_at is not None
