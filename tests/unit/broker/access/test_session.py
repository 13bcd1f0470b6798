"""Sessions remember decisions and hear of changes."""

import logging

from headrace.broker.access.acls import Acl, AclIndex, Operation, Resource
from headrace.broker.access.login import SaslLogin
from headrace.broker.access.session import ClientSession, Rules

READ, TOPIC = Operation.READ, Resource.TOPIC
ENTRY = Acl(TOPIC, 3, "orders", "User:alice", "*", READ, 3)


def session(rules, principal="User:alice"):
    return ClientSession(rules, host="10.0.0.1", login=SaslLogin((), str), principal=principal)


def test_a_change_of_the_rules_counts_at_once():
    rules = Rules(AclIndex(()), frozenset())
    alice = session(rules)
    assert not alice.may(READ, TOPIC, "orders")
    rules.replace(AclIndex([ENTRY]))
    assert alice.may(READ, TOPIC, "orders")
    rules.replace(AclIndex(()))
    assert not alice.may(READ, TOPIC, "orders")


def test_super_users_may_do_everything_even_what_is_denied():
    denial = Acl(TOPIC, 3, "*", "User:*", "*", Operation.ALL, 2)
    root = session(Rules(AclIndex([denial]), frozenset({"User:root"})), "User:root")
    assert root.may(READ, TOPIC, "orders")
    assert root.may_somewhere(READ, TOPIC)


def test_a_refusal_is_logged_once_and_a_hidden_name_never(caplog):
    alice = session(Rules(AclIndex(()), frozenset()))
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            alice.may(READ, TOPIC, "orders\nforged")
            alice.sees(READ, TOPIC, "other")
    assert [record.getMessage() for record in caplog.records] == [
        r"denied to User:alice from 10.0.0.1: read on topic 'orders\nforged'"
    ]


def test_nobody_is_super_by_having_no_name():
    nobody = session(Rules(AclIndex([ENTRY]), frozenset()), None)
    assert not nobody.is_super
    assert not nobody.may(READ, TOPIC, "orders")


def test_the_memory_of_decisions_is_bounded():
    alice = session(Rules(AclIndex([ENTRY]), frozenset()))
    for number in range(30_000):
        alice.sees(READ, TOPIC, f"topic-{number}")
    assert len(alice._remembered) <= 10_001
    assert alice.may(READ, TOPIC, "orders")


def test_allowed_operations_are_told_as_bits():
    alice = session(Rules(AclIndex([ENTRY]), frozenset()))
    assert alice.allowed_bits(TOPIC, "orders") == (1 << Operation.READ) | (1 << Operation.DESCRIBE)


def test_who_begins_a_login_is_nobody_whatever_was_decided_before():
    alice = session(Rules(AclIndex([ENTRY]), frozenset()))
    assert alice.may(READ, TOPIC, "orders")
    assert not alice.logged_in
    alice.forget()
    assert not alice.identified
    assert not alice.may(READ, TOPIC, "orders")
