"""An entity type tells its commands and events by annotations, and reads those of old versions."""

from dataclasses import dataclass

import pytest
from tests.unit.sourcing.accounts import Account, Deposit, Deposited, account_type, decide, evolve

from headrace.errors import ConfigError, RequestError
from headrace.sourcing import make_entity_type


def test_the_annotations_tell_the_types_of_commands_and_events():
    kind = account_type()
    assert list(kind.commands) == ["Deposit", "Withdraw", "Move", "Break"]
    assert list(kind.events) == ["Deposited", "Withdrawn"]


def test_functions_without_annotations_are_refused_with_the_form_they_need():
    with pytest.raises(ConfigError, match=r"decide\(command: A \| B, state\)"):
        make_entity_type("x", lambda command, state: [], evolve, Account())

    def plain(state, event: int) -> Account:
        return state

    with pytest.raises(ConfigError, match="int is neither a dataclass nor a pydantic model"):
        make_entity_type("x", decide, plain, Account())


def test_a_state_that_is_no_model_is_refused():
    with pytest.raises(ConfigError, match="not int"):
        make_entity_type("x", decide, evolve, 3)


def test_an_event_that_evolve_does_not_take_is_refused():
    @dataclass(frozen=True)
    class Other:
        pass

    kind = make_entity_type("x", decide, evolve, Account())
    kind.decide = lambda command, state: Other()
    with pytest.raises(
        ConfigError, match="decide returned a Other; the events that evolve takes are Deposited"
    ):
        kind.events_of(Deposit(1), Account())


def test_decide_may_return_nothing_one_event_or_many():
    kind = account_type()
    for found, events in (
        (None, ()),
        (Deposited(1), (Deposited(1),)),
        ([], ()),
        ((Deposited(2),), (Deposited(2),)),
    ):
        kind.decide = lambda command, state, found=found: found
        assert kind.events_of(Deposit(1), Account()) == events


def test_old_versions_are_brought_up_to_date_step_by_step():
    kind = account_type()

    @kind.upcast("Paid", 1)
    def to_cents(data):
        return {"cents": data["euros"] * 100}

    @kind.upcast("Paid", 2, into="Deposited")
    def renamed(data):
        return {"amount": data["cents"]}

    assert kind.version_of("Deposited") == 3
    assert kind.version_of("Withdrawn") == 1
    for version, data in ((1, {"euros": 3}), (2, {"cents": 300})):
        assert kind.read_event("Paid", version, data) == Deposited(300)
    assert kind.read_event("Deposited", 3, {"amount": 300}) == Deposited(300)


def test_an_event_of_newer_code_is_refused_and_so_is_one_that_nobody_knows():
    kind = account_type()
    with pytest.raises(RequestError, match="Deposited of version 2 was written by newer code"):
        kind.read_event("Deposited", 2, {"amount": 1})
    with pytest.raises(RequestError, match="did you mean 'Deposited'"):
        kind.read_event("Deposit", 1, {"amount": 1})


def test_two_upcasters_of_one_version_are_refused():
    kind = account_type()
    kind.upcast("Deposited", 1)(dict)
    with pytest.raises(ConfigError, match="each once"):
        kind.upcast("Deposited", 1)(dict)


def test_the_fingerprint_changes_with_the_code_that_makes_states_and_not_otherwise():
    def other(account: Account, event: Deposited) -> Account:
        return account

    kind, same = account_type(), account_type("other", snapshot_every=3)
    assert kind.fingerprint() == same.fingerprint()
    changed = [
        account_type(snapshots=2),
        make_entity_type("account", decide, other, Account()),
        make_entity_type("account", decide, evolve, Account(balance=1)),
        account_type(),
    ]
    changed[-1].upcast("Deposited", 1)(dict)
    assert len({kind.fingerprint(), *(each.fingerprint() for each in changed)}) == 5


def test_the_events_as_a_stream_have_the_fields_of_all_types():
    assert account_type().event_schema() == (
        "entity string, version bigint, type string, at timestamp, by string, command string, "
        "data struct<`amount`: bigint>"
    )
