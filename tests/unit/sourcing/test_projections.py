"""A projection's rows follow from its events alone, however those are cut into batches."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sourcing.accounts import Account, Deposited, Withdrawn, decide, evolve
from tests.unit.sourcing.balances import (
    ACCOUNT_EVENTS,
    CUSTOMER_EVENTS,
    Amounts,
    Balance,
    amounts,
    balances,
    people,
)
from tests.unit.sourcing.customers import customer_type

from headrace import App
from headrace.errors import ConfigError, RequestError
from headrace.personal import key_place, open_keys
from headrace.sourcing.projections import ProjectedRows, make_projection
from headrace.sourcing.records import Event
from headrace.views import ViewBatch, ViewSchema, net_changes, open_store


def bank():
    app = App("bank")
    app.entity("account", decide=decide, evolve=evolve, initial=Account())
    return app


def projection(function=balances, key="entity"):
    app = bank()
    app.projection(Deposited, Withdrawn, key=key)(function)
    (made,) = app.projections.values()
    return made


def events(amounts, entity="a-1", first=1):
    """Deposits, and withdrawals where they are negative."""
    return [
        Event(
            entity=entity,
            version=version,
            type="Deposited" if amount >= 0 else "Withdrawn",
            data={"amount": abs(amount)},
            at_ms=version * 1_000,
            by="ann",
            offset=version,
        )
        for version, amount in enumerate(amounts, first)
    ]


def shown(rows):
    return rows.table().sort_by("entity").to_pylist(maps_as_pydicts="strict")


def projected(of, happened):
    rows = ProjectedRows(of)
    for each in happened:
        rows.apply(each)
    return rows


def test_a_row_follows_from_the_events_of_its_entity():
    rows = projected(projection(), [*events([5, 3, -1]), *events([4], entity="b-1")])
    assert [(each["entity"], each["balance"], each["changes"], each["by"]) for each in shown(rows)] == [
        ("a-1", 7, 3, "ann"),
        ("b-1", 4, 1, "ann"),
    ]
    assert shown(rows)[0]["last"].timestamp() == 3


def test_a_row_goes_when_the_function_returns_none_and_comes_again():
    rows = projected(projection(), events([5, -5]))
    assert shown(rows) == [] and rows.changes() is None
    for each in events([9], first=3):
        rows.apply(each)
    assert [each["balance"] for each in shown(rows)] == [9]


def test_an_event_that_was_not_named_changes_nothing():
    app = bank()
    app.projection(Deposited)(balances)
    rows = projected(app.projections["balances"], events([5, -3, 2]))
    assert [each["balance"] for each in shown(rows)] == [7]


def test_a_key_may_have_fields_of_the_events():
    of = projection(amounts, key=("entity", "amount"))
    rows = projected(of, events([5, 3, 5]))
    assert [(each["amount"], each["times"], each["seen"], each["notes"]) for each in shown(rows)] == [
        (5, 2, [1, 3], {"by": "ann"}),
        (3, 1, [2], {"by": "ann"}),
    ]


@given(
    st.lists(st.integers(-5, 5).filter(bool), max_size=30),
    st.lists(st.integers(0, 30), max_size=6),
    st.sampled_from([(balances, "entity"), (amounts, ("entity", "amount"))]),
)
def test_rows_are_the_same_however_events_are_cut_into_batches_and_rows_are_loaded_again(given, cuts, made):
    of = projection(*made)
    happened = events(given)
    store = open_store("memory://cut-anywhere")
    store.drop("v")
    schema = ViewSchema("v", of.key, of.schema.columns)
    store.prepare(schema)
    store.begin("v", "q")
    ends = sorted({min(each, len(happened)) for each in cuts} | {len(happened)})
    for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        rows = ProjectedRows.load(of, store.read("v"))
        for each in happened[start:end]:
            rows.apply(each)
        store.apply("v", ViewBatch("q", number, rows.changes(), distinct=True))
    once = projected(of, happened)
    loaded = ProjectedRows.load(of, store.read("v"))
    in_order = [(name, "ascending") for name in of.key]
    assert loaded.table().sort_by(in_order).equals(once.table().sort_by(in_order))
    assert net_changes(schema, once.changes()).rows.num_rows == once.table().num_rows


def test_a_function_that_fails_changes_nothing():
    rows = projected(projection(), events([5]))
    broken = replace(events([1], first=2)[0], data={"amount": "text"})
    with pytest.raises(RequestError, match="amount"):
        rows.apply(broken)
    assert [each["balance"] for each in shown(rows)] == [5]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [(lambda row, _: replace(row or Balance(0, 0, None), balance="x"), "balance"), (lambda *_: 7, "int")],
)
def test_a_row_that_is_not_of_its_type_is_refused_at_its_event(wrong, reason):
    def balances(row: Balance | None, happened) -> Balance | None:
        return wrong(row, happened)

    with pytest.raises((RequestError, TypeError), match=reason):
        projected(projection(balances), events([5]))


def test_personal_fields_are_sealed_texts(tmp_path):
    sealed = open_keys(key_place(tmp_path)).seal("c-1", "Ann")
    kinds = {"customer": customer_type()}
    made = make_projection(people, CUSTOMER_EVENTS, kinds, key=("entity",), name="people", store=None)
    data = {"name": sealed, "country": "de"}
    registered = Event(entity="c-1", version=1, type="Registered", data=data, at_ms=0)
    assert shown(projected(made, [registered])) == [{"entity": "c-1", "name": sealed, "country": "de"}]


def test_the_fingerprint_changes_with_the_function_and_not_with_its_comments():
    def changed(row: Balance | None, happened) -> Balance | None:
        return row

    assert projection().fingerprint() == projection().fingerprint()
    assert projection().fingerprint() != projection(changed).fingerprint()
    assert projection(amounts).fingerprint() != projection(amounts, ("entity", "amount")).fingerprint()


@dataclass(frozen=True)
class WithKey:
    entity: str


@dataclass(frozen=True)
class Untyped:
    value: Any


def no_annotation(row, happened):
    return row


def with_key(row: WithKey | None, happened) -> WithKey:
    return row


def untyped(row: Untyped | None, happened) -> Untyped:
    return row


@pytest.mark.parametrize(
    ("function", "happened", "key", "reason"),
    [
        (balances, ACCOUNT_EVENTS, "amount", "@app.view"),
        (balances, ACCOUNT_EVENTS, ("entity", "amout"), "amount"),
        (balances, CUSTOMER_EVENTS, "entity", "Registered"),
        (balances, frozenset(), "entity", "nothing is not an event"),
        (no_annotation, ACCOUNT_EVENTS, "entity", "annotation"),
        (with_key, ACCOUNT_EVENTS, "entity", "in the key"),
        (untyped, ACCOUNT_EVENTS, "entity", "Untyped.value"),
    ],
)
def test_a_declaration_that_cannot_be_carried_out_is_refused(function, happened, key, reason):
    with pytest.raises(ConfigError, match=reason):
        bank().projection(*happened, key=key)(function)


def test_a_name_is_declared_once_among_views_and_projections():
    app = bank()
    app.view(name="balances")(lambda: None)
    with pytest.raises(ConfigError, match="twice"):
        app.projection(Deposited)(balances)


def test_decimals_come_back_as_they_were_kept():
    rows = projected(projection(amounts), events([1, 1, 1]))
    again = ProjectedRows.load(projection(amounts), rows.table())
    assert isinstance(shown(rows)[0]["share"], type(Amounts(0).share))
    assert again.table().equals(rows.table())
