"""A reaction that fails on an event: it is tried again and told of, and other partitions go on."""

import threading
import time

import pytest
from tests.integration.sourcing.serving import entities_at, serving
from tests.unit.sourcing.accounts import Deposit, Deposited, account_type

from headrace.sourcing import Reaction
from headrace.sourcing.topics import partition_of

PATIENCE_S = 240
PARTITIONS = 2


@pytest.fixture
def app(request):
    return request.node.name[:60]


def entity_in(partition, which=0):
    names = (f"a-{number}" for number in range(1_000))
    return [name for name in names if partition_of(name, PARTITIONS) == partition][which]


def wait(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


def test_an_event_that_a_reaction_fails_on_is_tried_again_and_holds_up_its_own_partition_alone(our_log, app):
    kind = account_type(partitions=PARTITIONS)
    entities = entities_at(our_log.bootstrap_servers, {"account": kind}, app)
    blocked, behind, beside = entity_in(0), entity_in(0, 1), entity_in(1)
    mended, seen, messages = threading.Event(), [], []

    def mirror(happened):
        if happened.event.amount == 13 and not mended.is_set():
            raise ZeroDivisionError("unlucky")
        seen.append((happened.entity, happened.event.amount))
        if happened.entity != "mirror":
            return entities.account("mirror").command(Deposit(happened.event.amount))
        return None

    reaction = Reaction(name="mirror", function=mirror, events=frozenset([Deposited]), kinds=(kind,))
    with serving(
        our_log.bootstrap_servers, {"account": kind}, app, reactions=[reaction], on_message=messages.append
    ):
        for entity, amount in ((blocked, 1), (blocked, 13), (behind, 2), (beside, 3), (beside, 4)):
            assert entities.account(entity).send_and_wait(Deposit(amount)).accepted
        told = f"failed on the event at {app}.account.events:0:"
        wait(lambda: len([each for each in messages if told in each]) >= 3, lambda: messages)
        wait(lambda: {(beside, 3), (beside, 4)} <= set(seen), lambda: seen)
        assert (behind, 2) not in seen
        first = next(each for each in messages if told in each)
        assert "ZeroDivisionError: unlucky" in first and "in mirror" in first and "in 0.5 s" in first
        assert any("tried again in 1 s" in each for each in messages)
        mended.set()
        wait(lambda: (behind, 2) in seen, lambda: messages)
        wait(lambda: any("has got past the event" in each for each in messages), lambda: messages)
        wait(lambda: entities.account("mirror").state().version == 5, lambda: seen)
    happened = [each.data["amount"] for each in entities.account("mirror").history()]
    assert sorted(happened) == [1, 2, 3, 4, 13]
    entities.close()
