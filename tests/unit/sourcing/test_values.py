"""Typed values go to JSON and back, and what does not fit is named."""

import enum
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal

import orjson
import pytest
from pydantic import BaseModel

from headrace.errors import ConfigError, RequestError
from headrace.sourcing.values import from_json, json_schema, spark_type, to_json


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Part:
    name: str
    price: Decimal


@dataclass(frozen=True)
class Order:
    id: uuid.UUID
    at: datetime
    day: date
    parts: tuple[Part, ...]
    pair: tuple[int, str]
    notes: dict[str, list[int]]
    counts: dict[int, float]
    colour: Colour
    seal: bytes
    tags: frozenset[str] = frozenset()
    maybe: Part | None = None
    extra: list[bool] = field(default_factory=list)


class Model(BaseModel):
    name: str
    at: datetime


ORDER = Order(
    id=uuid.UUID(int=7),
    at=datetime(2026, 1, 5, 9, 30, tzinfo=UTC),
    day=date(2026, 1, 5),
    parts=(Part("nut", Decimal("1.10")),),
    pair=(1, "a"),
    notes={"a": [1, 2]},
    counts={3: 0.5},
    colour=Colour.RED,
    seal=b"\x00\xff",
    tags=frozenset({"b", "a"}),
    maybe=Part("bolt", Decimal("2")),
    extra=[True],
)


def through_json(kind, value):
    return from_json(kind, orjson.loads(orjson.dumps(to_json(value))))


def test_a_dataclass_comes_back_from_json_as_it_was():
    assert through_json(Order, ORDER) == ORDER
    assert to_json(ORDER)["at"] == "2026-01-05T09:30:00Z"


def test_a_pydantic_model_comes_back_from_json_as_it_was():
    model = Model(name="x", at=datetime(2026, 1, 5, tzinfo=UTC))
    assert through_json(Model, model) == model


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"day": "soon"}, "day: expected date, got 'soon'"),
        ({"parts": [{"name": "nut", "price": "x"}]}, "parts[0].price: expected decimal, got 'x'"),
        ({"parts": [{"name": "nut"}]}, "parts[0].price is missing"),
        ({"pair": [1]}, "pair: expected a list of 2, got [1]"),
        ({"notes": 3}, "notes: expected an object, got 3"),
        ({"notes": {"a": ["x"]}}, "notes.a[0]: expected integer, got 'x'"),
        ({"colour": "blue"}, "colour: expected Colour, got 'blue'"),
        ({"other": 1}, "Order: there is no field 'other'"),
        ({"extra": [1]}, "extra[0]: expected boolean, got 1"),
    ],
)
def test_data_that_does_not_fit_is_refused_by_the_name_of_its_field(change, said):
    with pytest.raises(RequestError) as refused:
        from_json(Order, {**to_json(ORDER), **change})
    assert str(refused.value) == said


def test_a_pydantic_model_that_does_not_fit_is_refused():
    with pytest.raises(RequestError, match="name"):
        from_json(Model, {"at": "2026-01-05T00:00:00Z"})


def test_what_has_no_form_in_json_is_refused_with_what_has():
    with pytest.raises(ConfigError, match="type complex has no form in JSON"):
        to_json(1j)


def test_a_type_is_described_as_a_schema_and_in_the_words_of_spark():
    schema = json_schema(Part)
    assert schema["properties"] == {
        "name": {"type": "string"},
        "price": {"type": "string", "format": "decimal"},
    }
    assert schema["required"] == ["name", "price"]
    assert spark_type(tuple[Part, ...]) == "array<struct<name: string, price: string>>"
    assert spark_type(int | None) == "bigint"
    assert spark_type(dict[str, float]) == "map<string, double>"
