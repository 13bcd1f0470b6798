"""Commands are carried out by whoever owns their partition, each once, and answered."""

import asyncio
import contextlib
import json
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, Producer
from tests.integration.sourcing.serving import ServerProcess, entities_at, serving
from tests.unit.sourcing.accounts import Account, Deposit, Move, Withdraw, account_type

from headrace.client import Connection
from headrace.errors import RequestError, RetriableError
from headrace.sourcing import Command, CommandSender, History, list_entities
from headrace.sourcing.restore import restore
from headrace.sourcing.topics import create_entity_topics, partition_of
from headrace.testing.broker import BrokerProcess


@pytest.fixture
def bootstrap(our_log):
    return our_log.bootstrap_servers


@pytest.fixture
def app(request):
    return request.node.name.replace("[", "-").replace("]", "")[:60]


@pytest.fixture
def bank(bootstrap, app):
    """The accounts of a running server."""
    kinds = {"account": account_type(partitions=2)}
    entities = entities_at(bootstrap, kinds, app)
    with serving(bootstrap, kinds, app):
        yield entities
    entities.close()


def test_a_command_is_accepted_rejected_or_in_conflict(bank):
    account = bank.account("a-1")
    answer = account.send_and_wait(Deposit(10), by="ann")
    assert (answer.outcome, answer.version, answer.events[0].data) == ("accepted", 1, {"amount": 10})
    answer = account.send_and_wait(Withdraw(11))
    assert (answer.outcome, answer.rule) == ("rejected", "insufficient-funds")
    answer = account.send_and_wait(Withdraw(1), expected_version=7)
    assert (answer.outcome, answer.version) == ("conflict", 1)
    answer = account.send_and_wait(Withdraw(1), expected_version=1)
    assert (answer.outcome, answer.version) == ("accepted", 2)
    assert account.state().state == Account(balance=9, changes=2)


def test_a_type_that_nobody_has_served_yet_is_told_of_without_advice_to_create_its_topics(bootstrap, app):
    kind, connection = account_type(partitions=2), Connection(bootstrap_servers=bootstrap)
    for ask in (
        History(connection, app, kind, "a-1").now,
        History(connection, app, kind, "a-1").events,
        lambda: list_entities(connection, app, kind.name),
    ):
        with pytest.raises(RequestError, match=r"no account yet.*headrace serve") as raised:
            ask()
        assert "partitions" not in str(raised.value)


def test_commands_in_another_partition_than_their_entity_s_are_rejected(bank, bootstrap, app):
    entity = next(each for each in map(str, range(100)) if partition_of(each, 2) == 1)
    sender = Producer({"bootstrap.servers": bootstrap})
    headers = {"headrace.command.name": b"Deposit", "headrace.command.id": b"misplaced"}
    assert bank.account(entity).send_and_wait(Deposit(1)).accepted
    sender.produce(f"{app}.account.commands", b'{"amount": 5}', entity, partition=0, headers=headers)
    sender.produce(f"{app}.account.commands", b"{", entity, partition=1, headers=headers)
    assert sender.flush(30) == 0
    answers = answered(bootstrap, f"{app}.account.answers", "misplaced", 2)
    assert {each["rule"] for each in answers} == {"wrong-partition", "invalid-command"}
    assert "partitioner=murmur2_random" in "".join(each["message"] for each in answers)
    assert bank.account(entity).state().state == Account(balance=1, changes=1)


def answered(bootstrap, topic, command, count):
    """The answers to a command that came as a record."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "auto.offset.reset": "earliest"})
    reader.subscribe([topic])
    found = []
    try:
        while len(found) < count:
            message = reader.poll(60)
            assert message is not None, "no answer"
            if message.error() is None and message.key() == command.encode():
                found.append(json.loads(message.value()))
    finally:
        reader.close()
    return found


def test_a_state_without_a_form_in_json_costs_the_snapshots_and_nothing_else(bootstrap, app):
    kinds = {"account": account_type(partitions=1, snapshot_every=2)}
    entities = entities_at(bootstrap, kinds, app)
    with serving(bootstrap, kinds, app):
        for _ in range(4):
            assert entities.account("a").send_and_wait(Deposit(2**63 - 1)).accepted
    with serving(bootstrap, kinds, app):
        assert entities.account("a").send_and_wait(Deposit(1)).version == 5
    assert entities.account("a").state().state.balance == 4 * (2**63 - 1) + 1
    entities.close()


def test_commands_that_nobody_waits_for_any_more_do_not_trouble_the_end(bootstrap, app):
    kinds = {"account": account_type(partitions=1)}
    with serving(bootstrap, kinds, app):
        pass  # creates the topics; nobody serves now
    entities = entities_at(bootstrap, kinds, app)

    async def give_up():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(entities.account("a").send(Deposit(1)), 0.2)

    asyncio.run(give_up())
    entities.close()


def test_coroutines_send_commands_too(bank):
    async def send_many():
        sent = [bank.account(f"a-{each % 5}").send(Deposit(1)) for each in range(50)]
        return await asyncio.gather(*sent)

    answers = asyncio.run(send_many())
    assert all(each.accepted for each in answers)
    assert sum(bank.account(f"a-{each}").state().state.balance for each in range(5)) == 50


def test_exactly_one_of_concurrent_commands_with_one_expected_version_wins(bank):
    with ThreadPoolExecutor(16) as pool:
        sent = [
            pool.submit(bank.account("a-1").send_and_wait, Deposit(each), expected_version=0)
            for each in range(16)
        ]
        outcomes = [each.result().outcome for each in sent]
    assert sorted(outcomes) == ["accepted"] + ["conflict"] * 15


def test_a_repeated_command_gets_the_first_answer_also_from_the_next_owner(log, app):
    bootstrap = log.bootstrap_servers
    kinds = {"account": account_type(partitions=2)}
    entities = entities_at(bootstrap, kinds, app)
    with serving(bootstrap, kinds, app):
        first = entities.account("a-1").send_and_wait(Deposit(1), command_id="once")
        refused = entities.account("a-1").send_and_wait(Withdraw(9), command_id="never")
    with serving(bootstrap, kinds, app):
        again = entities.account("a-1").send_and_wait(Deposit(1), command_id="once")
        entities.account("a-1").send_and_wait(Deposit(20))
        still = entities.account("a-1").send_and_wait(Withdraw(9), command_id="never")
    assert (again.repeated, again.version, again.token) == (True, first.version, first.token)
    assert (still.outcome, still.message) == ("rejected", refused.message)
    assert entities.account("a-1").state().state.balance == 21
    entities.close()


def test_a_record_of_any_kafka_client_is_a_command(bootstrap, bank, app):
    bank.account("a-1").send_and_wait(Deposit(5))
    producer = Producer({"bootstrap.servers": bootstrap})
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "r", "auto.offset.reset": "earliest"})
    reader.subscribe([f"{app}.account.answers"])
    producer.produce(
        f"{app}.account.commands", b'{"amount": 2}', b"a-1", headers={"headrace.command.name": b"Withdraw"}
    )
    producer.produce(f"{app}.account.commands", b"nonsense", b"a-1")  # passed over
    producer.flush()
    found = []
    while len(found) < 2:
        message = reader.poll(1)
        if message is not None and message.error() is None:
            found.append(json.loads(message.value()))
    reader.close()
    assert [each["events"][0]["type"] for each in found] == ["Deposited", "Withdrawn"]
    assert found[1]["command"].startswith(f"{app}.account.commands:")
    assert bank.account("a-1").send_and_wait(Deposit(1)).version == 3


def test_the_past_is_there_at_every_version_and_time(bank):
    account = bank.account("a-1")
    account.send_and_wait(Move((5, -2, 4)), by="ann")
    account.send_and_wait(Withdraw(7), by="bob", cause="why", correlation="all")
    states = [account.state(version=each).state.balance for each in range(5)]
    assert states == [0, 5, 3, 7, 0]
    events = account.history()
    assert [(each.version, each.type, each.by, each.command_name) for each in events] == [
        (1, "Deposited", "ann", "Move"),
        (2, "Withdrawn", "ann", "Move"),
        (3, "Deposited", "ann", "Move"),
        (4, "Withdrawn", "bob", "Withdraw"),
    ]
    assert (events[3].cause, events[3].correlation) == ("why", "all")
    with pytest.raises(RequestError, match="has no version 9; its last is 4"):
        account.state(version=9)


def test_entities_are_listed_with_their_versions(bootstrap, bank, app):
    for each in range(3):
        bank.account(f"a-{each}").send_and_wait(Move((1,) * (each + 1)))
    kind = account_type(partitions=2)
    found = list_entities(Connection(bootstrap_servers=bootstrap), app, kind.name)
    assert found == {"a-0": 1, "a-1": 2, "a-2": 3}


def test_states_come_from_snapshots_and_from_all_events_where_those_do_not_fit(bootstrap, app):
    kinds = {"account": account_type(partitions=1, snapshot_every=10)}
    entities = entities_at(bootstrap, kinds, app)
    with serving(bootstrap, kinds, app):
        for each in range(25):
            entities.account(f"a-{each % 2}").send_and_wait(Deposit(1))
    connection = Connection(bootstrap_servers=bootstrap)
    changed = account_type(partitions=1, snapshots=2)
    for kind in (kinds["account"], changed):
        assert History(connection, app, kind, "a-0").now().state == Account(13, 13)
    with serving(bootstrap, {"account": changed}, app):
        assert entities.account("a-0").send_and_wait(Deposit(1)).version == 14
    assert History(connection, app, changed, "a-0").now().state == Account(14, 14)
    entities.close()


def test_a_member_for_which_nothing_is_left_is_ready_and_takes_over_when_the_other_leaves(bootstrap, app):
    kinds = {"account": account_type(partitions=1)}
    entities = entities_at(bootstrap, kinds, app)
    with contextlib.ExitStack() as first:
        owner = first.enter_context(serving(bootstrap, kinds, app))
        with serving(bootstrap, kinds, app) as second:
            assert len(owner.owned) + len(second.owned) == 1
            assert entities.account("a-1").send_and_wait(Deposit(1)).version == 1
            first.close()
            assert entities.account("a-1").send_and_wait(Deposit(1)).version == 2
            assert second.owned == [(f"{app}.account.commands", 0)]
    entities.close()


def test_who_waits_in_vain_is_told_how_to_ask_again(bootstrap, app):
    entities = entities_at(bootstrap, {"account": account_type(partitions=1)}, app)
    with pytest.raises(RetriableError, match="send it again with command_id='mine'"):
        entities.account("a-1").send_and_wait(Deposit(1), command_id="mine", timeout_s=0.2)
    entities.close()


def test_commands_go_on_when_the_broker_was_away(tmp_path):
    kinds = {"account": account_type(partitions=1)}
    with BrokerProcess(tmp_path) as broker:
        entities = entities_at(broker.bootstrap, kinds)
        with serving(broker.bootstrap, kinds):
            assert entities.account("a-1").send_and_wait(Deposit(1)).version == 1
            broker.kill()
            broker.start()
            assert entities.account("a-1").send_and_wait(Deposit(1), timeout_s=90).version == 2
        entities.close()


def test_a_log_that_is_not_there_yet_is_waited_for_and_what_for_is_said(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    server = ServerProcess(f"127.0.0.1:{port}", messages=subprocess.PIPE)
    assert f"waiting for the log: cannot connect to 127.0.0.1:{port}" in server.read_message()
    with BrokerProcess(tmp_path, port=port):
        assert server.wait_ready()["entities"] == ["account"]
        assert server.stop() == 0


def test_a_command_that_the_log_cannot_take_leaves_those_who_wait_for_the_same_id(bootstrap, app):
    kinds, connection = {"account": account_type(partitions=2)}, Connection(bootstrap_servers=bootstrap)
    create_entity_topics(connection, app, kinds.values())
    sender = CommandSender(connection, app)
    waiting = sender.send("account", Command(entity="a-1", name="Deposit", data={"amount": 1}, id="c-1"))
    huge = Command(entity="a-1", name="Deposit", data={"amount": 1, "note": "x" * 2_000_000}, id="c-1")
    with pytest.raises(RequestError, match="send a smaller command"):
        sender.send("account", huge)
    with serving(bootstrap, kinds, app):
        assert waiting.result(60).accepted
    sender.close()


def test_the_next_owner_knows_as_many_answers_as_the_type_remembers(bootstrap, app):
    kinds = {"account": account_type(partitions=1, remember=20)}
    entities = entities_at(bootstrap, kinds, app)
    with serving(bootstrap, kinds, app):
        for number in range(30):  # one after the other: each is a transaction, and has a marker, of its own
            entities.account("a-1").send_and_wait(Deposit(1), command_id=f"c-{number}")
    restored = restore(Connection(bootstrap_servers=bootstrap), app, kinds["account"], 0)
    assert [each for _, each in restored._answers] == [f"c-{number}" for number in range(10, 30)]
    assert restored.next_command == 30
    entities.close()
