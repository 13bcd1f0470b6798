"""Steps in plain values: those that compute the same are described alike in every process, others are not."""

import json

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know

from headrace.streams.engine.projection import Select, Where, WithColumns
from headrace.streams.engine.step_description import describe_step

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def function(kind="string"):
    @F.udf(kind)
    def shortened(text):
        return text[:2]

    return shortened


SAME = {
    "a function of a user's own": (lambda: function()(F.col("a") + 1), lambda: function()(F.col("a") + 1)),
    "bytes": (lambda: F.lit(b"ab"), lambda: F.lit(b"ab")),
    "a lambda": (lambda: F.transform("a", lambda x: x + 1), lambda: F.transform("a", lambda x: x + 1)),
    "how text is written": (lambda: "a+1", lambda: " a  + 1"),
}
OTHER = {
    "a column": (lambda: F.col("a") > 1, lambda: F.col("b") > 1),
    "a value": (lambda: F.col("a") > 1, lambda: F.col("a") > 2),
    "the type of a value": (lambda: F.lit(1), lambda: F.lit("1")),
    "an operator": (lambda: F.col("a") > 1, lambda: F.col("a") >= 1),
    "a function's type": (lambda: function()("a"), lambda: function("binary")("a")),
    "bytes": (lambda: F.lit(b"ab"), lambda: F.lit(b"ac")),
    "bytes in a condition": (lambda: F.when(F.col("a"), b"a"), lambda: F.when(F.col("a"), b"b")),
    "what a cast does with what it cannot": (lambda: "cast(a as int)", lambda: "try_cast(a as int)"),
    "what a cast makes": (lambda: "cast(a as int)", lambda: "cast(a as long)"),
    "a lambda's fields": (
        lambda: "transform(a, x -> x.b - x.c)",
        lambda: "transform(a, x -> x.c - x.b)",
    ),
    "a lambda's variables": (
        lambda: F.zip_with("a", "b", lambda x, y: x - y),
        lambda: F.zip_with("a", "b", lambda x, y: y - x),
    ),
    "the other branch": (lambda: "case when a then 1 end", lambda: "case when a then 1 else 2 end"),
}


def described(step):
    return json.loads(json.dumps(describe_step(step)))


@pytest.mark.parametrize("name", SAME)
def test_what_computes_the_same_is_described_alike(spark, name):
    one, other = (described(Where(make())) for make in SAME[name])
    assert one == other
    assert "@" not in json.dumps(one)


@pytest.mark.parametrize("name", OTHER)
def test_what_computes_something_else_is_described_otherwise(spark, name):
    one, other = (described(Where(make())) for make in OTHER[name])
    assert one != other


def test_every_kind_of_step_has_its_columns(spark):
    assert described(Select(("a", "b as c"))) != described(Select(("a", "b as d")))
    assert described(WithColumns({"c": "a"})) != described(WithColumns({"d": "a"}))
    assert described(Where("a")) == {
        "step": "where",
        "condition": {"node": "UnresolvedAttribute", "nameParts": "[a]"},
    }
