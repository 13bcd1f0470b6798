"""Schema texts into Arrow, as Spark would read them."""

import pyarrow as pa
import pytest

from headrace.errors import ConfigError
from headrace.streams.ddl import arrow_schema

TEXT = (
    "a string, `b c` BIGINT NOT NULL, c: int comment 'x, y', d array<struct<x:double,y:array<date>>>, "
    "e decimal(12,3), f timestamp, g timestamp_ntz, h boolean, i smallint, j tinyint, k float, l binary, "
    "m decimal"
)


def test_all_that_json_can_hold_is_understood():
    inner = pa.struct([("x", pa.float64()), ("y", pa.list_(pa.field("element", pa.date32())))])
    assert arrow_schema(TEXT) == pa.schema(
        [
            ("a", pa.string()),
            pa.field("b c", pa.int64(), nullable=False),
            ("c", pa.int32()),
            ("d", pa.list_(pa.field("element", inner))),
            ("e", pa.decimal128(12, 3)),
            ("f", pa.timestamp("us", tz="UTC")),
            ("g", pa.timestamp("us")),
            ("h", pa.bool_()),
            ("i", pa.int16()),
            ("j", pa.int8()),
            ("k", pa.float32()),
            ("l", pa.binary()),
            ("m", pa.decimal128(10, 0)),
        ]
    )
    assert len(arrow_schema("")) == 0


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_spark_reads_the_same(spark):
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    theirs = to_arrow_schema(StructType.fromDDL(TEXT), timezone="UTC")
    assert [(field.name, field.type) for field in theirs] == [
        (field.name, field.type) for field in arrow_schema(TEXT)
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a", "there is no type ''"),
        ("a strin", "there is no type 'strin'; did you mean 'string'\\? There is boolean"),
        ("a str", "there is no type 'str'; use string. There is boolean"),
        ("a datetime", "there is no type 'datetime'; use timestamp."),
        ("a map<int,string>", "a map with keys of int32; names in JSON are strings"),
        ("a int b int", "'b' where ',' should stand"),
        ("a int,", "'its end' where a column's name should stand"),
        ("a array<int", "'its end' where '>' should stand"),
        ("a decimal(40)", "more than 38 digits"),
        ("a decimal(x)", "'x' where a number should stand"),
        ("a int, a string", "names a twice"),
        ("? int", "'\\?' where a column's name should stand"),
    ],
)
def test_a_mistake_is_named(text, reason):
    with pytest.raises(ConfigError, match=reason):
        arrow_schema(text)
