"""Decisions from access control entries."""

import pytest

from headrace.broker.access.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclIndex,
    Operation,
    Pattern,
    Permission,
    Resource,
    problem_with,
)

TOPIC, READ, WRITE, DESCRIBE, ALL = (
    Resource.TOPIC,
    Operation.READ,
    Operation.WRITE,
    Operation.DESCRIBE,
    Operation.ALL,
)
ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = Pattern.LITERAL, Pattern.PREFIXED


def acl(operation, name="orders", *, pattern=LITERAL, who="User:alice", host="*", says=ALLOW, on=TOPIC):
    return Acl(on, pattern, name, who, host, operation, says)


def allowed(acls, operation, name="orders", *, who="User:alice", host="10.0.0.1", on=TOPIC):
    return AclIndex(acls).allows(who, host, operation, on, name)


def test_what_nothing_allows_is_denied():
    assert not allowed([], READ)


def test_a_permission_holds_for_its_operation_principal_and_name_only():
    given = [acl(READ)]
    assert allowed(given, READ)
    assert not allowed(given, WRITE)
    assert not allowed(given, READ, "orders2")
    assert not allowed(given, READ, who="User:bob")
    assert not allowed(given, READ, on=Resource.GROUP)


def test_a_denial_wins_over_any_permission():
    given = [acl(ALL, "*", who="User:*"), acl(READ, says=DENY)]
    assert not allowed(given, READ)
    assert allowed(given, WRITE)
    assert allowed(given, READ, who="User:bob")
    assert not allowed([acl(READ), acl(ALL, "*", says=DENY)], READ)
    assert not allowed([acl(READ), acl(ALL, "ord", pattern=PREFIXED, says=DENY)], READ)


def test_a_prefix_covers_names_that_begin_with_it():
    given = [acl(READ, "ord", pattern=PREFIXED)]
    assert allowed(given, READ, "orders")
    assert allowed(given, READ, "ord")
    assert not allowed(given, READ, "or")
    assert not allowed([acl(READ, "ord")], READ, "orders")


def test_a_star_is_every_name_as_a_literal_and_a_star_as_a_prefix():
    assert allowed([acl(READ, "*")], READ, "anything")
    assert not allowed([acl(READ, "*", pattern=PREFIXED)], READ, "anything")


def test_hosts_are_compared():
    assert allowed([acl(READ, host="10.0.0.1")], READ)
    assert not allowed([acl(READ, host="10.0.0.2")], READ)
    assert allowed([acl(READ), acl(READ, host="10.0.0.2", says=DENY)], READ)


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER, ALL])
def test_whoever_may_touch_may_look(operation):
    assert allowed([acl(operation)], DESCRIBE)


def test_looking_does_not_imply_touching_and_create_does_not_imply_looking():
    assert not allowed([acl(DESCRIBE)], READ)
    assert not allowed([acl(Operation.CREATE)], DESCRIBE)
    assert allowed([acl(Operation.ALTER_CONFIGS)], Operation.DESCRIBE_CONFIGS)
    assert not allowed([acl(Operation.DESCRIBE_CONFIGS)], Operation.ALTER_CONFIGS)


def test_a_denied_read_still_lets_look_as_kafka_has_it():
    assert allowed([acl(ALL), acl(READ, says=DENY)], DESCRIBE)


def test_somewhere_finds_a_permission_that_no_denial_takes_back():
    def somewhere(*given):
        return AclIndex(given).allows_somewhere("User:alice", "10.0.0.1", WRITE, TOPIC)

    assert not somewhere()
    assert not somewhere(acl(READ))
    assert somewhere(acl(WRITE))
    assert not somewhere(acl(WRITE), acl(WRITE, says=DENY))
    assert not somewhere(acl(WRITE), acl(ALL, "*", says=DENY))
    assert not somewhere(acl(WRITE, "orders"), acl(WRITE, "ord", pattern=PREFIXED, says=DENY))
    assert somewhere(acl(WRITE, "*"), acl(WRITE, "ord", pattern=PREFIXED, says=DENY))
    assert somewhere(acl(WRITE, "ord", pattern=PREFIXED), acl(WRITE, "orders", says=DENY))


def test_filters_leave_fields_open_or_fix_them():
    one = acl(READ, "ord", pattern=PREFIXED)
    assert AclFilter().matches(one)
    assert AclFilter(name="ord", pattern=PREFIXED).matches(one)
    assert not AclFilter(name="ord", pattern=LITERAL).matches(one)
    assert AclFilter(name="orders", pattern=Pattern.MATCH).matches(one)
    assert not AclFilter(name="bills", pattern=Pattern.MATCH).matches(one)
    assert not AclFilter(principal="User:bob").matches(one)
    assert not AclFilter(operation=WRITE).matches(one)
    assert not AclFilter(permission=DENY).matches(one)


@pytest.mark.parametrize(
    "wrong",
    [
        acl(Operation.ANY),
        acl(Operation.IDEMPOTENT_WRITE),
        acl(READ, pattern=Pattern.MATCH),
        acl(READ, who="alice"),
        acl(READ, who="Group:staff"),
        acl(READ, who="User:"),
        acl(READ, ""),
        acl(READ, host=""),
        acl(READ, says=Permission.ANY),
        acl(READ, "x" * 2000),
        acl(Operation.CREATE, "other", on=Resource.CLUSTER),
        acl(READ, on=6),
    ],
)
def test_entries_that_mean_nothing_are_refused(wrong):
    assert problem_with(wrong)


def test_entries_that_mean_something_are_taken():
    assert problem_with(acl(ALL, "*")) is None
    assert problem_with(acl(Operation.CREATE, CLUSTER_NAME, on=Resource.CLUSTER)) is None
