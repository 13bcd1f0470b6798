"""What follows from events: commands with ids of their own, at once or when their time has come."""

import pytest
from tests.unit.sourcing.accounts import Account, Deposit, Deposited, Withdraw, decide, evolve

from headrace import App
from headrace.errors import ConfigError
from headrace.records import Record
from headrace.sourcing import Command, Send
from headrace.sourcing.reactions import commands_of, output_records
from headrace.sourcing.records import Event, read_command_record
from headrace.sourcing.timers import Timer, TimerQueue


@pytest.fixture
def app():
    made = App("bank")
    made.entity("account", decide=decide, evolve=evolve, initial=Account())
    return made


def event(type_="Deposited", **fields):
    given = {
        "entity": "a-1",
        "version": 3,
        "data": {"amount": 5},
        "at_ms": 1_000,
        "partition": 2,
        "offset": 40,
    }
    return Event(type=type_, correlation="all", **{**given, **fields})


def sent_by(app, happened):
    (reaction,) = app.reactions.values()
    return commands_of(reaction, app.entity_types["account"], "bank.account.events", happened)


def test_a_command_names_the_event_that_it_follows_from(app):
    @app.react(Deposited)
    def mirror(deposited):
        to = app.entities.account(f"mirror-{deposited.entity}")
        return [to.command(Deposit(deposited.event.amount)), to.command(Withdraw(1), after=60)]

    (now, first), (later, second) = sent_by(app, event())
    assert first.id == "mirror:bank.account.events:2:40:0"
    assert second.id == "mirror:bank.account.events:2:40:1"
    assert (first.entity, first.data, first.cause, first.correlation, first.by) == (
        "mirror-a-1",
        {"amount": 5},
        "bank.account.events:2:40",
        "all",
        "reaction mirror",
    )
    assert (now.after_s, later.after_s) == (0, 60)
    direct, timer = output_records("bank", event(), sent_by(app, event()))
    assert (direct.topic, direct.key) == ("bank.account.commands", b"mirror-a-1")
    found = read_command_record("t", 0, Record(0, 0, direct.key, direct.value, direct.headers))
    assert (found.id, found.name) == (first.id, "Deposit")
    assert (timer.topic, timer.key) == ("bank.timers", second.id.encode())
    assert Timer.from_value(timer.value) == Timer(
        command=second, topic="bank.account.commands", due_ms=61_000
    )


def test_other_events_are_not_its_business(app):
    app.react(Deposited)(lambda_named("only", lambda happened: pytest.fail("called")))
    assert sent_by(app, event("Withdrawn")) == []


def test_nothing_one_or_many_may_follow(app):
    found = []
    app.react(Deposited)(lambda_named("any", lambda happened: found[0]))
    one = app.entities.account("b").command(Deposit(1))
    for returned, count in ((None, 0), (one, 1), ([], 0), ([one, one], 2)):
        found[:] = [returned]
        assert len(sent_by(app, event())) == count
    found[:] = [[Deposit(1)]]
    with pytest.raises(ConfigError, match=r"returned a Deposit; return what entity.command\(…\) makes"):
        sent_by(app, event())


def lambda_named(name, function):
    function.__name__ = name
    return function


def test_a_reaction_to_what_is_no_event_is_refused(app):
    with pytest.raises(ConfigError, match="Deposit is not an event of any entity"):
        app.react(Deposit)(lambda_named("wrong", lambda happened: None))
    with pytest.raises(ConfigError, match="nothing is not an event"):
        app.react()(lambda_named("wrong", lambda happened: None))
    app.react(Deposited)(lambda_named("twice", lambda happened: None))
    with pytest.raises(ConfigError, match="declared twice"):
        app.react(Deposited)(lambda_named("twice", lambda happened: None))


def test_a_command_that_the_entity_does_not_know_is_refused(app):
    with pytest.raises(ConfigError, match="there is no command 'Account'"):
        app.entities.account("a").command(Account())
    assert isinstance(app.entities.account("a").command(Deposit(1)), Send)


# --- timers -----------------------------------------------------------------------------------------


def timer(name, due_ms):
    command = Command(entity="a", name="Deposit", data={"amount": 1}, id=name)
    return Timer(command=command, topic="t", due_ms=due_ms)


def test_timers_are_due_in_order_and_once():
    queue = TimerQueue()
    for name, due_ms in (("b", 20), ("a", 10), ("c", 30)):
        queue.apply(name.encode(), timer(name, due_ms).value())
    assert queue.due(5) == []
    assert [each.command.id for each in queue.due(20)] == ["a", "b"]
    assert queue.due(20) == [] and len(queue) == 3
    for name in (b"a", b"b"):
        queue.apply(name, None)
    assert [each.command.id for each in queue.due(99)] == ["c"]


def test_a_timer_that_has_ended_is_not_due_again_and_a_changed_one_at_its_new_time():
    queue = TimerQueue()
    queue.apply(b"a", timer("a", 10).value())
    queue.apply(b"a", timer("a", 50).value())
    queue.apply(b"b", timer("b", 10).value())
    queue.apply(b"b", None)
    assert queue.due(20) == []
    assert [each.due_ms for each in queue.due(50)] == [50]


def test_no_more_timers_than_asked_are_due_at_once():
    queue = TimerQueue()
    for each in range(5):
        queue.apply(str(each).encode(), timer(str(each), each).value())
    assert [len(queue.due(9, most=2)) for _ in range(4)] == [2, 2, 1, 0]
