"""Personal fields are sealed in everything that is written, and open to those who decide and evolve."""

from dataclasses import dataclass

import pytest
from tests.unit.sourcing.customers import Customer, Order, customer_type, order_type

from headrace import Personal
from headrace.errors import ConfigError, RetriableError
from headrace.personal import KeyStore, forget, is_sealed
from headrace.personal.forget import Cleared
from headrace.sourcing import DescribedKind, Sealing, make_entity_type
from headrace.sourcing.clearing import is_in_clear
from headrace.sourcing.partition import EntityPartition
from headrace.sourcing.records import Command, Topics

ADDRESS = {"street": "Hidden Lane 1"}


@pytest.fixture
def keys(tmp_path):
    store = KeyStore(tmp_path / "keys.db", bytes(32))
    yield store
    store.close()


def partition(kind, keys):
    made = EntityPartition(kind, Topics.of("shop", kind.name), 0, find_keys=lambda: keys)
    made.sealing.remember_forgotten()
    return made


def send(owned, entity, name, data, offset, *, sealed=True):
    if sealed:
        data = Sealing(owned.kind, owned.sealing.find_keys).seal_command(entity, name, data)
    command = Command(entity=entity, name=name, data=data, id=f"c-{offset}", offset=offset)
    return owned.decide([command], 0)


def forgotten(keys, subject):
    forget(keys, subject, at_ms=0, clear=lambda _: Cleared())


def written(owned, decided):
    parts = [each.value() for each in (*decided.events, *decided.answers)]
    return b"".join([*parts, *(value for _, value in owned.snapshots(10)[0])])


def test_events_answers_and_snapshots_are_sealed_and_the_state_is_open(keys):
    owned = partition(customer_type(), keys)
    decided = send(owned, "c-1", "Register", {"name": "Hildegard", "country": "DE", "born": 194311}, 0)
    assert owned.entities["c-1"].state == Customer(("Hildegard",), "DE")
    found = written(owned, decided)
    assert b"Hildegard" not in found and b"194311" not in found and b"DE" in found
    opened = owned.sealing.open_answer(decided.answers[0])
    assert opened.events[0].data == {"name": "Hildegard", "country": "DE", "born": 194311}


def test_what_a_rejection_or_a_defect_says_is_sealed_too(keys):
    owned = partition(customer_type(), keys)
    send(owned, "c-1", "Register", {"name": "Hildegard", "country": "DE"}, 0)
    rejected = send(owned, "c-1", "Register", {"name": "Brunhild", "country": "DE"}, 1)
    wrong = send(owned, "c-1", "Rename", {"name": 1234567}, 2)
    broken = send(owned, "c-1", "Rename", {"name": "Crash"}, 3)
    answers = [each.answers[0] for each in (rejected, wrong, broken)]
    assert [each.rule for each in answers] == ["registered", "invalid-command", "error"]
    shown = b"".join(each.value() for each in answers) + "".join(broken.failures).encode()
    assert not any(each in shown for each in (b"Hildegard", b"Brunhild", b"1234567", b"Crash"))
    assert owned.sealing.open_answer(answers[0]).message == "Hildegard is registered"
    assert "ValueError" in broken.failures[0]


def test_a_personal_field_in_the_clear_is_rejected_without_being_repeated(keys):
    owned = partition(customer_type(), keys)
    decided = send(owned, "c-1", "Register", {"name": "Hildegard", "country": "DE"}, 0, sealed=False)
    assert decided.answers[0].rule == "invalid-command" and not decided.events
    assert "in the clear" in owned.sealing.open_answer(decided.answers[0]).message
    assert b"Hildegard" not in decided.answers[0].value()


def test_a_value_that_was_sealed_for_somebody_else_is_not_opened(keys):
    owned = partition(customer_type(), keys)
    stolen = {"name": keys.seal("c-1", "Hildegard"), "country": "DE"}
    decided = send(owned, "c-2", "Register", stolen, 0, sealed=False)
    assert owned.sealing.open_event(decided.events[0]).data["name"] is None
    plain = {"name": keys.seal("c-2", "Eve"), "country": keys.seal("c-2", "secret")}
    decided = send(owned, "c-3", "Register", plain, 1, sealed=False)
    assert is_sealed(decided.events[0].data["country"])


def test_after_forgetting_the_state_comes_from_the_events_without_the_personal_fields(keys):
    owned = partition(customer_type(), keys)
    events = []
    for at, entity in enumerate(("c-1", "c-2")):
        events += send(owned, entity, "Register", {"name": f"Name {at}", "country": "DE"}, at).events
    snapshots = dict(owned.snapshots(10)[0])
    forgotten(keys, "c-1")
    again = partition(customer_type(), keys)
    for each in events:
        again.apply(each)
    assert again.entities["c-1"].state == Customer((None,), "DE")
    assert again.entities["c-2"].state == Customer(("Name 1",), "DE")
    import orjson

    again.load_snapshot("c-2", 1, orjson.loads(snapshots["c-2"])["state"])
    with pytest.raises(Exception, match="destroyed"):
        again.load_snapshot("c-1", 1, orjson.loads(snapshots["c-1"])["state"])


def test_an_owner_that_still_remembers_a_forgotten_subject_reads_it_again_before_it_writes(keys):
    owned = partition(customer_type(), keys)
    send(owned, "c-1", "Register", {"name": "Hildegard", "country": "DE"}, 0)
    forgotten(keys, "c-1")
    with pytest.raises(RetriableError):
        owned.snapshots(10)
    with pytest.raises(RetriableError):
        send(owned, "c-1", "Rename", {"name": "Brunhild"}, 1)


def test_a_field_names_the_subject_of_an_order(keys):
    owned = partition(order_type(), keys)
    events = []
    for at, customer in enumerate(("c-1", "c-2")):
        decided = send(owned, "o-1", "Place", {"customer": customer, "address": ADDRESS}, at)
        assert b"Hidden" not in written(owned, decided)
        events += decided.events
    assert owned.entities["o-1"].state == Order((ADDRESS, ADDRESS))
    forgotten(keys, "c-1")
    owned.changed = {"o-1"}  # since its last snapshot
    with pytest.raises(RetriableError):
        owned.snapshots(10)  # the state is of both customers
    again = partition(order_type(), keys)
    for each in events:
        again.apply(each)
    assert again.entities["o-1"].state == Order((None, ADDRESS))


def test_old_versions_are_opened_before_they_are_brought_up_to_date(keys):
    kind = customer_type()
    sealing = Sealing(kind, lambda: keys)
    event = partition(kind, keys)._event(
        Command(entity="c-1", name="Register", data={}, id="c"), 1, 0, "Registered", {}, 0
    )

    @kind.upcast("Registered", 1)
    def renamed(fields):
        return {"name": fields["full_name"], "country": fields["country"]}

    from dataclasses import replace

    old = replace(event, data={"full_name": keys.seal("c-1", "Hildegard"), "country": "DE"})
    opened = sealing.open_event(old)
    assert kind.read_event(opened.type, opened.schema, opened.data).name == "Hildegard"


def test_the_description_seals_as_the_type_does(keys):
    for kind, entity, name, data in (
        (customer_type(), "c-1", "Register", {"name": "Hildegard", "country": "DE"}),
        (order_type(), "o-1", "Place", {"customer": "c-1", "address": ADDRESS}),
    ):
        sealed = Sealing(DescribedKind.of(kind.describe()), lambda: keys).seal_command(entity, name, data)
        assert b"Hil" not in repr(sealed).encode() and b"Hidden" not in repr(sealed).encode()
        assert Sealing(kind, lambda: keys).open_command(entity, name, 1, sealed) == data
    assert not DescribedKind.of({"type": "t", "commands": {"A": {"schema": {}, "version": 1}}}).is_personal


def test_personal_fields_are_text_for_views(keys):
    schema = customer_type().event_schema()
    assert "`name`: string" in schema and "`born`: string" in schema


@dataclass(frozen=True)
class Named:
    name: Personal[str]


@dataclass(frozen=True)
class Open:
    name: str


@dataclass(frozen=True)
class Hidden:
    names: list[Personal[str]]


@dataclass(frozen=True)
class Inside:
    named: Named | None = None


@dataclass(frozen=True)
class State:
    count: int = 0


def kind_of(command, event, **options):
    def decide(given: command, state: State): ...

    def evolve(state: State, happened: event): ...

    decide.__annotations__["given"] = command
    evolve.__annotations__["happened"] = event
    return make_entity_type("person", decide, evolve, State(), **options)


@pytest.mark.parametrize(
    ("command", "event", "options", "said"),
    [
        (Open, Named, {}, "in the clear"),
        (Named, Hidden, {}, "inside"),
        (Named, Inside, {}, "inside"),
        (Named, Named, {"subject": "customer"}, "needs the field 'customer'"),
        (Named, Named, {"subject": "name"}, "not personal itself"),
    ],
)
def test_a_declaration_that_would_write_in_the_clear_is_refused(command, event, options, said):
    with pytest.raises(ConfigError, match=said):
        kind_of(command, event, **options)
    assert kind_of(Named, Named).is_personal and not kind_of(Open, Open).is_personal


def test_what_is_in_the_clear_is_told_from_what_is_sealed(keys):
    sealed = keys.seal("c-1", "Ann")
    assert is_in_clear({"name": "Ann"}, ["name"], None, "c-1")
    assert not is_in_clear({"name": sealed, "country": "DE"}, ["name"], None, "c-1")
    assert not is_in_clear({"name": None}, ["name"], None, "c-1")
    assert is_in_clear({"customer": "c-1", "name": "Ann"}, ["name"], "customer", "c-1")
    assert not is_in_clear({"customer": "c-2", "name": "Ann"}, ["name"], "customer", "c-1")
    assert not is_in_clear("text", ["name"], None, "c-1")
