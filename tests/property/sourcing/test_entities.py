"""Whatever the commands, however they are cut into transactions: one history, one state."""

from dataclasses import dataclass, replace
from itertools import pairwise

import orjson
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sourcing.accounts import Account, account_type

from headrace.records import Record
from headrace.sourcing import make_entity_type, steps_of
from headrace.sourcing.partition import EntityPartition
from headrace.sourcing.records import Command, Topics, read_event_record

TOPICS = Topics.of("bank", "account")
AMOUNTS = st.integers(0, 20)
SENT = st.lists(
    st.tuples(
        st.sampled_from(["Deposit", "Withdraw", "Move", "Break", "Nonsense"]),
        st.sampled_from(["a", "b", "c"]),
        AMOUNTS,
        st.one_of(st.none(), st.integers(0, 4)),
        st.integers(0, 12),
    ),
    max_size=40,
)


def commands(sent):
    return [
        Command(
            entity=entity,
            name=name,
            data={"amounts": [amount, -amount]} if name == "Move" else {"amount": amount},
            id=f"id-{number}",
            expected=expected,
            offset=offset,
        )
        for offset, (name, entity, amount, expected, number) in enumerate(sent)
    ]


def fresh():
    return EntityPartition(account_type(), TOPICS, 0)


def on_the_log(events):
    """The events as they are read back from their records."""
    return [
        read_event_record(
            0, Record(each.offset, each.at_ms, each.entity.encode(), each.value(), each.headers())
        )
        for each in events
    ]


def replayed(events):
    again = fresh()
    for event in events:
        again.apply(event)
    return again


@given(SENT, st.integers(0, 40))
def test_snapshots_and_the_tail_give_the_state_from_the_beginning_at_every_version(sent, cut):
    owned = fresh()
    first = list(owned.decide(commands(sent)[:cut], 0).events)
    snapshots = [(name, orjson.loads(value)) for name, value in owned.snapshots(10)[0]]
    rest = list(owned.decide(commands(sent)[cut:], 0).events)
    events = on_the_log([*first, *rest])
    for upto in range(len(first), len(events) + 1):
        from_snapshots = fresh()
        for name, found in snapshots:
            from_snapshots.load_snapshot(name, found["version"], found["state"])
        for event in events[:upto]:
            from_snapshots.apply(event)
        assert from_snapshots.entities == replayed(events[:upto]).entities
    assert replayed(events).entities == owned.entities


@given(SENT, st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3)), max_size=12))
def test_a_checkpoint_that_is_written_piece_by_piece_between_commands_restores_the_state_at_any_time(
    sent, steps
):
    owned, waiting = fresh(), commands(sent)
    events, on_log, checkpoint = [], {}, None
    for taken, most in steps:
        now, waiting = waiting[:taken], waiting[taken:]
        events += on_the_log(owned.decide(now, 0).events)
        snapshots, done = owned.snapshots(most)
        on_log |= {name: orjson.loads(value) for name, value in snapshots}
        checkpoint = done or checkpoint
        again = fresh()
        if checkpoint is not None:
            for name, found in on_log.items():
                again.load_snapshot(name, found["version"], found["state"])
        for event in events[0 if checkpoint is None else checkpoint.events :]:
            again.apply(event)
        assert again.entities == owned.entities


@given(SENT, st.lists(st.integers(0, 40), max_size=4))
def test_how_commands_are_cut_into_transactions_changes_nothing(sent, cuts):
    together, apart = fresh(), fresh()
    whole = together.decide(commands(sent), 0)
    bounds = [0, *sorted(cuts), len(sent)]
    parts = [apart.decide(commands(sent)[start:end], 0) for start, end in pairwise(bounds)]
    assert [each for part in parts for each in part.events] == whole.events
    assert [each for part in parts for each in part.answers] == whole.answers


@given(SENT)
def test_no_invariant_breaks_and_each_id_is_carried_out_once(sent):
    owned = fresh()
    decided = owned.decide(commands(sent), 0)
    for name in ("a", "b", "c"):
        events = [each for each in decided.events if each.entity == name]
        assert [each.version for each in events] == list(range(1, len(events) + 1))
        by_id = [each.command for each in events]
        assert all(by_id.count(each) <= 2 for each in by_id)  # a Move has two
    accepted = [each for each in decided.answers if each.accepted and not each.repeated]
    assert len({(each.entity, each.command) for each in accepted}) == len(accepted)
    assert all(each.state.balance >= 0 for each in owned.entities.values())


@given(SENT)
def test_replay_is_pure_it_gives_the_same_again_and_leaves_the_events_alone(sent):
    events = on_the_log(fresh().decide(commands(sent), 0).events)
    kept = [replace(each) for each in events]
    own = [each for each in events if each.entity == "a"]
    kind = account_type()
    assert list(steps_of(kind, own)) == list(steps_of(kind, own))
    assert events == kept and kind.initial == Account()


@dataclass(frozen=True)
class Paid:
    cents: int
    currency: str


@dataclass(frozen=True)
class Pay:
    cents: int


@dataclass(frozen=True)
class Total:
    cents: int = 0


def decide(command: Pay, total: Total) -> list[Paid]:
    return [Paid(command.cents, "EUR")]


def evolve(total: Total, event: Paid) -> Total:
    return Total(total.cents + event.cents)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 100))))
def test_histories_of_old_versions_stay_readable(history):
    kind = make_entity_type("payment", decide, evolve, Total())
    kind.upcast("Payment", 1)(lambda old: {"cents": old["euros"] * 100})
    kind.upcast("Payment", 2, into="Paid")(lambda old: {**old, "currency": "EUR"})
    written = {
        1: lambda cents: ("Payment", {"euros": cents}, cents * 100),
        2: lambda cents: ("Payment", {"cents": cents}, cents),
        3: lambda cents: ("Paid", {"cents": cents, "currency": "EUR"}, cents),
    }
    state, total = kind.initial, 0
    for version, cents in history:
        name, data, worth = written[version](cents)
        state, total = kind.evolve(state, kind.read_event(name, version, data)), total + worth
    assert state == Total(total)
