"""What becomes of commands: accepted, rejected, in conflict, or answered before."""

import re
import sys
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from tests.unit.sourcing.accounts import Account, account_type

from headrace.console.write.tokens import decode_token
from headrace.errors import RequestError, RetriableError
from headrace.records import COMMAND_PREFIX, Record
from headrace.sourcing import Rejected, make_entity_type
from headrace.sourcing.partition import EntityPartition, Unreadable
from headrace.sourcing.records import Answer, Command, Topics, read_command_record, read_event_record

TOPICS = Topics.of("bank", "account")


def partition(**options):
    return EntityPartition(account_type(**options), TOPICS, 2, next_event=100)


def command(name, offset, *, entity="a-1", **fields):
    data = {"Move": "amounts"}.get(name, "amount")
    given = {data: fields.pop(data)} if data in fields else {}
    return Command(
        entity=entity, name=name, data=given, id=fields.pop("id", f"c{offset}"), offset=offset, **fields
    )


def test_an_accepted_command_has_version_events_and_a_token_of_what_it_wrote():
    owned = partition()
    decided = owned.decide(
        [command("Deposit", 7, amount=5, by="ann"), command("Move", 8, amounts=[1, -2])], 1_000
    )
    assert [(each.version, each.type, each.data, each.offset) for each in decided.events] == [
        (1, "Deposited", {"amount": 5}, 100),
        (2, "Deposited", {"amount": 1}, 101),
        (3, "Withdrawn", {"amount": 2}, 102),
    ]
    first, second = decided.answers
    assert (first.outcome, first.version, first.events[0].type) == ("accepted", 1, "Deposited")
    assert second.version == 3 and len(second.events) == 2
    assert decode_token(first.token) == {"bank.account.events": {2: 101}}
    assert decode_token(second.token) == {"bank.account.events": {2: 103}}
    assert decided.events[0].by == "ann" and decided.events[0].command == "c7"
    assert decided.events[0].correlation == "c7"
    assert owned.next_command == 9 and owned.next_event == 103


def test_a_rejected_command_names_its_rule_and_writes_nothing():
    owned = partition()
    decided = owned.decide([command("Withdraw", 0, amount=5)], 0)
    assert not decided.events
    (answer,) = decided.answers
    assert (answer.outcome, answer.rule, answer.message) == (
        "rejected",
        "insufficient-funds",
        "the balance is 0",
    )
    assert owned.next_command == 1 and not owned.entities


@pytest.mark.parametrize(
    ("sent", "rule", "message"),
    [
        (command("Deposit", 0, amount="x"), "invalid-command", "amount: expected integer, got 'x'"),
        (command("Depose", 0), "invalid-command", "did you mean 'Deposit'"),
        (command("Break", 0), "error", "Break failed; the messages of the server say why, under its id c0"),
    ],
)
def test_a_command_that_cannot_be_read_or_meets_a_defect_is_rejected(sent, rule, message):
    (answer,) = partition().decide([sent], 0).answers
    assert (answer.outcome, answer.rule) == ("rejected", rule)
    assert message in answer.message


def test_the_text_of_a_defect_is_for_the_server_s_messages_only():
    decided = partition().decide([command("Break", 0)], 0)
    assert b"ZeroDivision" not in decided.answers[0].value() and b"broken" not in decided.answers[0].value()
    (failure,) = decided.failures
    assert "command c0 (Break) failed: ZeroDivisionError: broken (" in failure and "in decide)" in failure
    assert partition().decide([command("Deposit", 0, amount=1)], 0).failures == []


@dataclass(frozen=True)
class Pay:
    amount: int

    def __post_init__(self):
        if self.amount < 0:
            raise ValueError("the amount must not be negative")
        if self.amount == 0:
            raise SystemExit(3)


@dataclass(frozen=True)
class Paid:
    amount: int


@dataclass(frozen=True)
class Till:
    total: int = 0


def pay(command: Pay, _: Till) -> list[Paid]:
    if command.amount == 13:
        raise RetriableError("no answer from 10.0.0.7")
    return [Paid(checked(command.amount))]


def checked(amount: int) -> int:
    return amount // (amount - 14)


def add(till: Till, event: Paid) -> Till:
    return Till(till.total + event.amount)


@pytest.mark.parametrize(
    ("amount", "rule", "message"),
    [
        (-1, "invalid-command", "Pay: the amount must not be negative"),
        (0, "error", "Pay failed"),
        (13, "error", "Pay failed"),
        (14, "error", "Pay failed"),
    ],
)
def test_whatever_the_code_of_a_command_raises_ends_that_command_only(amount, rule, message):
    owned = EntityPartition(make_entity_type("till", pay, add, Till()), Topics.of("bank", "till"), 0)
    sent = [Command(entity="t", name="Pay", data={"amount": each}, id=f"c{each}") for each in (amount, 28)]
    broken, sound = owned.decide(sent, 0).answers
    assert (broken.outcome, broken.rule) == ("rejected", rule) and broken.message.startswith(message)
    assert b"10.0.0.7" not in broken.value()
    assert (sound.outcome, sound.version) == ("accepted", 1)


def test_a_defect_is_told_with_the_calls_of_the_application_that_led_to_it():
    owned = EntityPartition(make_entity_type("till", pay, add, Till()), Topics.of("bank", "till"), 0)
    (failure,) = owned.decide([Command(entity="t", name="Pay", data={"amount": 14}, id="c")], 0).failures
    assert re.search(r"ZeroDivisionError: .* in pay; .*test_partition.py, line \d+, in checked\)$", failure)
    assert "in decide" not in failure and "partition.py, line" in failure


@dataclass(frozen=True)
class Give:
    how: str


@dataclass(frozen=True)
class Gave:
    amount: int
    text: str = ""


@dataclass(frozen=True)
class Given:
    last: Any = None


GIFTS = {
    "a float for an integer": lambda: Gave(2.5),
    "not a number": lambda: Gave(float("nan")),
    "more than 64 bits": lambda: Gave(1 << 70),
    "half a character": lambda: Gave(1, "\ud800"),
    "the end of the program": lambda: sys.exit(3),
    "words that cannot be written": lambda: (_ for _ in ()).throw(Rejected("no\ud800", "not \ud800 that")),
}


def gifts():
    def decide(command: Give, state: Given) -> Gave:
        return GIFTS[command.how]() if command.how in GIFTS else Gave(1)

    def evolve(state: Given, event: Gave) -> Given:
        return Given(event)

    kind = make_entity_type("gift", decide, evolve, Given())
    return EntityPartition(kind, Topics.of("bank", "gift"), 0)


@pytest.mark.parametrize("how", GIFTS)
def test_events_that_could_not_be_read_again_are_rejected_and_the_partition_goes_on(how):
    owned = gifts()
    sent = [
        Command(entity="a", name="Give", data={"how": each}, id=each, offset=number)
        for number, each in enumerate((how, "right"))
    ]
    decided = owned.decide(sent, 0)
    assert [each.outcome for each in decided.answers] == ["rejected", "accepted"]
    assert [orjson.loads(each.value())["data"] for each in decided.events] == [{"amount": 1, "text": ""}]
    assert all(Answer.from_value(each.value()).command == each.command for each in decided.answers)


def test_evolve_is_given_events_as_the_log_has_them():
    @dataclass(frozen=True)
    class Listed:
        items: tuple[int, ...]

    def decide(command: Give, state: Given) -> Listed:
        return Listed([1, 2])  # a list, and on replay a tuple

    def evolve(state: Given, event: Listed) -> Given:
        return Given(event.items)

    hints = {"event": Listed, "state": Given, "return": Given}
    evolve.__annotations__ = hints
    owned = EntityPartition(make_entity_type("gift", decide, evolve, Given()), Topics.of("bank", "gift"), 0)
    owned.decide([Command(entity="a", name="Give", data={"how": ""}, id="c", offset=0)], 0)
    assert owned.entities["a"].state == Given((1, 2))


def test_a_record_that_is_no_command_is_answered_if_it_has_an_id():
    owned = partition()
    decided = owned.decide(
        [
            Unreadable(3, "not JSON", "invalid-command", "a-1", "c3"),
            Unreadable(4, "not JSON", "invalid-command", "a-1", "c3"),
            Unreadable(5, "not JSON"),
        ],
        0,
    )
    first, second = decided.answers
    assert (first.outcome, first.rule, first.message, first.offset) == (
        "rejected",
        "invalid-command",
        "not JSON",
        3,
    )
    assert second.repeated and owned.next_command == 6


def test_of_two_commands_that_expect_one_version_the_second_is_in_conflict():
    owned = partition()
    sent = [command("Deposit", each, amount=1, expected=0) for each in (0, 1)]
    first, second = owned.decide(sent, 0).answers
    assert (first.outcome, second.outcome, second.version) == ("accepted", "conflict", 1)
    assert "version 0 was expected, and the entity is at 1" in second.message


def test_a_repeated_command_gets_the_first_answer_and_happens_once():
    owned = partition()
    sent = [command("Deposit", 0, amount=5, id="x"), command("Withdraw", 1, amount=9, id="y")]
    first = owned.decide(sent, 0).answers
    again = owned.decide(
        [command("Deposit", 2, amount=5, id="x"), command("Withdraw", 3, amount=1, id="y")], 0
    )
    assert not again.events
    for before, after in zip(first, again.answers, strict=True):
        assert after.repeated and not before.repeated
        assert {**after.to_json(), "repeated": False} == before.to_json()
    assert [each.offset for each in again.answers] == [2, 3]  # so the next owner takes them for carried out
    assert owned.next_command == 4


def test_the_same_id_for_another_entity_is_another_command():
    owned = partition()
    sent = [command("Deposit", at, amount=1, id="x", entity=each) for at, each in enumerate(("a", "b"))]
    assert [each.entity for each in owned.decide(sent, 0).events] == ["a", "b"]


def test_only_the_last_answers_are_remembered():
    owned = partition(remember=2)
    owned.decide([command("Deposit", each, amount=1, id=str(each)) for each in range(3)], 0)
    again = owned.decide([command("Deposit", 3 + each, amount=1, id=str(each)) for each in (2, 0)], 0).answers
    assert [each.repeated for each in again] == [True, False]


def test_a_record_that_is_no_command_is_passed_over():
    owned = partition()
    decided = owned.decide([Unreadable(4, "no name"), command("Deposit", 5, amount=1)], 0)
    assert len(decided.answers) == 1 and owned.next_command == 6
    assert owned.decide([Unreadable(6, "no name")], 0).answers == [] and owned.next_command == 7


def test_restored_from_snapshots_and_events_it_is_as_it_was():
    owned = partition()
    before = owned.decide([command("Deposit", 0, amount=5), command("Deposit", 1, amount=2, entity="b")], 0)
    snapshots = dict(owned.snapshots(10)[0])
    after = owned.decide([command("Withdraw", 2, amount=1)], 0)
    again = partition()
    for entity, value in snapshots.items():
        found = orjson.loads(value)
        again.load_snapshot(entity, found["version"], found["state"])
    for event in (*before.events, *after.events):
        again.apply(event)
    assert again.entities == owned.entities
    assert again.entities["a-1"].state == Account(balance=4, changes=2)
    assert again.changed == {"a-1"}


def test_a_gap_in_the_events_is_refused():
    owned = partition()
    events = owned.decide([command("Move", 0, amounts=[1, 2, 3])], 0).events
    again = partition()
    again.apply(events[0])
    with pytest.raises(RequestError, match="event 3 of 'a-1' follows version 1"):
        again.apply(events[2])


def test_a_checkpoint_is_due_after_so_many_events():
    owned = partition(snapshot_every=3)
    owned.decide([command("Move", 0, amounts=[1, 2])], 0)
    assert not owned.wants_checkpoint
    owned.decide([command("Deposit", 1, amount=1, entity="b")], 0)
    assert owned.wants_checkpoint
    snapshots, checkpoint = owned.snapshots(10)
    assert [entity for entity, _ in snapshots] == ["a-1", "b"]
    assert (checkpoint.events, checkpoint.commands) == (103, 2)
    assert not owned.wants_checkpoint
    assert owned.snapshots(10)[0] == []


def test_a_checkpoint_comes_in_pieces_and_says_what_there_was_when_it_began():
    owned = partition(snapshot_every=3)
    for at, entity in enumerate("abc"):
        owned.decide([command("Deposit", at, amount=1, entity=entity)], 0)
    first, checkpoint = owned.snapshots(2)
    assert [entity for entity, _ in first] == ["a", "b"] and checkpoint is None
    owned.decide([command("Deposit", at, amount=1, entity="a") for at in (3, 4)], 0)
    assert owned.wants_checkpoint
    last, checkpoint = owned.snapshots(2)
    assert [entity for entity, _ in last] == ["c"]
    assert (checkpoint.events, checkpoint.commands) == (103, 3)
    assert not owned.wants_checkpoint and owned.changed == {"a"}


def test_a_checkpoint_that_is_given_up_leaves_its_entities_to_the_next():
    owned = partition(snapshot_every=2)
    for at, (entity, amount) in enumerate((("a", 1), ("b", 2**63), ("b", 2**63), ("c", 1))):
        owned.decide([command("Deposit", at, amount=amount, entity=entity)], 0)
    assert [entity for entity, _ in owned.snapshots(1)[0]] == ["a"]
    with pytest.raises(TypeError):
        owned.snapshots(2)
    owned.give_up_snapshots()
    assert not owned.wants_checkpoint and owned.changed == {"b", "c"}


# --- records ----------------------------------------------------------------------------------------


def test_a_command_comes_back_from_its_record():
    sent = command("Deposit", 9, amount=1, by="ann", cause="e", correlation="r", expected=4, schema=2)
    record = Record(9, 55, b"a-1", sent.value(), sent.headers())
    assert read_command_record("t", 0, record) == Command(**{**as_dict(sent), "at_ms": 55})


def as_dict(sent):
    return {name: getattr(sent, name) for name in sent.__slots__}


def test_key_value_and_name_are_enough_for_a_command_whose_id_is_then_its_place():
    record = Record(9, 55, b"a-1", b'{"amount": 1}', ((f"{COMMAND_PREFIX}name", b"Deposit"),))
    assert read_command_record("cmds", 3, record).id == "cmds:3:9"


@pytest.mark.parametrize(
    ("key", "value", "headers", "said"),
    [
        (None, b"{}", ((f"{COMMAND_PREFIX}name", b"Deposit"),), "no key"),
        (b"a", b"{}", (), "no header headrace.command.name"),
        (b"a", b"{", ((f"{COMMAND_PREFIX}name", b"Deposit"),), "not a command"),
        (
            b"a",
            b"{}",
            ((f"{COMMAND_PREFIX}name", b"Deposit"), (f"{COMMAND_PREFIX}expected", b"x")),
            "not a command",
        ),
    ],
)
def test_a_record_that_is_no_command_is_refused_with_the_reason(key, value, headers, said):
    with pytest.raises(RequestError, match=said):
        read_command_record("t", 0, Record(0, 0, key, value, headers))


def test_an_event_comes_back_from_its_record():
    (event,) = (
        partition().decide([command("Deposit", 9, amount=1, by="ann", cause="e")], 1_700_000_000_123).events
    )
    record = Record(event.offset, event.at_ms, b"a-1", event.value(), event.headers())
    assert read_event_record(2, record) == event
    assert orjson.loads(event.value())["at"] == "2023-11-14T22:13:20.123Z"
    with pytest.raises(RequestError, match="not an event"):
        read_event_record(2, Record(0, 0, b"a-1", b"{}", ()))


def test_an_answer_comes_back_from_its_record():
    (answer,) = partition().decide([command("Deposit", 9, amount=1)], 0).answers
    assert Answer.from_value(answer.value()) == answer
