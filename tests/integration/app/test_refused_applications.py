"""What is wrong with an application is one sentence with its place, said before anything runs."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.app.loading import import_app
from headrace.app.plain_frame import reading_from
from headrace.app.plan.planner import plan_app
from headrace.client import Connection
from headrace.errors import ConfigError

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]

BEGINNING = """\
from pyspark.sql import Window, functions as F
from headrace import App, agg, tumbling

app = App("weather")
s = app.stream("readings", schema="device string, temp double, at timestamp", event_time="at")

@app.view{arguments}
def hot():
    return (
        {result}
    )
"""
RING = """\
from headrace import App

app = App("weather")
s = app.stream("readings", schema="device string, temp double, at timestamp", event_time="at")

{first}
def hot():
    return s.df.select("device", "temp")
"""
SECOND = """
h = app.stream("hot", schema="device string, temp double")

{second}
def back():
    return h.select("device", "temp")
"""
FRAME = """
made = []

def frame():
    return made[0]

@app.view(name="a", key="device")
def first():
    made.append(s.df)
    return made[0].select("device")
app.views = {name: app.views[name] for name in sorted(app.views)}  # this one first
"""
TABLES = """\
from headrace import App, agg

app = App("weather")
readings = app.table("readings", key="device", schema="device string, place string, temp double")
places = app.table("places", key="place", schema="place string, country string")

app.view(name="first", store={!r})(lambda: readings.join(places, on="place"))
app.view(name="second", store={!r})(lambda: places)
"""
A_MINUTE = 's.window(tumbling("1 minute"), by="device")'

REFUSED = [
    (
        "",
        's.where("tmp > 3")',
        10,
        "there is no column 'tmp'; did you mean 'temp'? There is device, temp",
    ),
    ("", 's.where(F.col("tmp") > 3)', 10, "there is no column 'tmp'; did you mean 'temp'?"),
    ("", 's.where("temp > 3")\n        .select("device", "tmp")', 11, "there is no column 'tmp'"),
    ("", 's.where("temp >")', 10, "Syntax error at or near end of input (in 'temp >')"),
    ("", 's.where("temp")', 10, 'Filter expression "temp" of type "DOUBLE" is not a boolean'),
    ("", 's.with_columns(x="nothere(temp)")', 10, "Cannot resolve routine `nothere`"),
    ("", f'{A_MINUTE}.agg(x=agg.sum("tmp"))', 10, "there is no column 'tmp'; did you mean 'temp'?"),
    ("", f'{A_MINUTE}.agg(x=agg.sum("device"))', 10, "column 'device' of type string has no sum"),
    (
        "",
        's.groupBy("device")',
        10,
        "a stream has no 'groupBy'; use .window(…, by=…).agg(…) or .group_by(…).agg(…), or .df",
    ),
    (
        "",
        f'{A_MINUTE}.agg(x=F.sum("temp"))',
        10,
        "x=Column<'sum(temp)'> is not an aggregate; use agg.count()",
    ),
    ("", 's.wher("temp > 3")', 10, "a stream has no 'wher'; use .where, or .df"),
    ("", "1 / 0", 10, "ZeroDivisionError: division by zero"),
    ("", "None", 7, "returns NoneType; return a stream"),
    ('(key="devise")', "s", 7, "its key: there is no column 'devise'; did you mean 'device'?"),
    ('(store="mysql://there/shop")', "s", 7, "'mysql://there/shop' is not the URL of a view store"),
    ('(store="topic://?partitions=0")', "s", 7, "partitions must be 1 or more"),
    # What was found only when the query was started.
    (
        "",
        "s.with_columns(x=F.explode(F.array(F.lit(1))))",
        10,
        "explode and similar functions make several rows",
    ),
    ("", 's.select("*")', 10, "name each instead of `*`"),
    (
        "",
        's.with_columns(x=F.row_number().over(Window.partitionBy("device").orderBy("temp")))',
        10,
        "Window function is not supported in ROW_NUMBER()",
    ),
    ('(key="device")', 's.df.sort("temp")', 7, "Sorting is not supported on streaming DataFrames"),
    ('(key="device")', 's.df.where("tmp > 3")', 10, "there is no column 'tmp'; did you mean 'temp'?"),
]


@pytest.mark.parametrize(("arguments", "result", "line", "said"), REFUSED, ids=[each[1] for each in REFUSED])
def test_a_mistake_is_one_sentence_with_file_line_and_view(
    spark, tmp_path, capfd, arguments, result, line, said
):
    file = tmp_path / "weather.py"
    file.write_text(BEGINNING.format(arguments=arguments, result=result))
    app = import_app(file)
    with reading_from(spark, Connection()), pytest.raises(ConfigError) as refused:
        plan_app(app, spark)
    message = str(refused.value)
    assert message.startswith(f"{file}, line {line}: view 'hot'"), message
    assert said in message
    assert "\n" not in message and "SQLSTATE" not in message and "_kept" not in message
    assert "QueryContextLogger" not in capfd.readouterr().err


def test_steps_that_spark_takes_are_planned_as_before(spark, tmp_path):
    file = tmp_path / "weather.py"
    result = 's.where("temp > 3").with_columns(f="temp * 1.8").select("device", F.col("f").alias("g"))'
    file.write_text(BEGINNING.format(arguments="", result=result))
    (stream,) = plan_app(import_app(file), spark).streams
    assert stream.views[0].plan.columns == ("device", "g")


@pytest.mark.parametrize(
    ("first", "second", "ring"),
    [
        ('@app.view(key="device", store="topic://readings")', None, "readings -> readings"),
        (
            '@app.view(key="device", store="topic://read*?partitions=2", name="ings")',
            None,
            "readings -> readings",
        ),
        ('@app.topic("readings", key="device")', None, "readings -> readings"),
        ('@app.topic("hot", key="device")', '@app.topic("readings")', "hot -> readings -> hot"),
    ],
)
def test_a_ring_through_a_plain_dataframe_is_refused(spark, tmp_path, first, second, ring):
    file = tmp_path / "weather.py"
    text = RING.format(first=first)
    if second is not None:
        text += SECOND.format(second=second)
    file.write_text(text)
    with reading_from(spark, Connection()), pytest.raises(ConfigError, match=f"round forever: {ring}"):
        plan_app(import_app(file), spark)


def test_a_ring_and_a_shared_topic_are_found_in_views_over_several_topics(spark, tmp_path):
    file = tmp_path / "weather.py"
    for stores, said in (
        (("topic://readings", None), "round forever: readings -> readings"),
        (("topic://both", "topic://both"), "topic 'both' holds one view"),
    ):
        file.write_text(TABLES.format(*stores))
        with reading_from(spark, Connection()), pytest.raises(ConfigError, match=said):
            plan_app(import_app(file), spark)


def test_a_dataframe_that_was_made_before_its_view_is_looked_through(spark, tmp_path):
    """Whoever asked for it: what counts is what it reads."""
    file = tmp_path / "weather.py"
    file.write_text(
        RING.format(first='@app.topic("readings", key="device")').replace("s.df", "frame()") + FRAME
    )
    with reading_from(spark, Connection()), pytest.raises(ConfigError, match="readings -> readings"):
        plan_app(import_app(file), spark)


def test_dataframes_that_go_one_way_are_planned(spark, tmp_path):
    file = tmp_path / "weather.py"
    file.write_text(RING.format(first='@app.topic("hot", key="device")'))
    with reading_from(spark, Connection()):
        assert len(plan_app(import_app(file), spark).frames) == 1


HEAD = """\
from headrace import App, agg, tumbling

app = App("weather")
s = app.stream("readings", schema="device string, temp double, at timestamp", event_time="at")

@app.view
def hot():
    return {result}
"""


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (HEAD.format(result='s.where("tmp > 3")'), 8, "there is no column 'tmp'; did you mean 'temp'?"),
        pytest.param(
            HEAD.format(result='s.window(tumbling("1 minute")).agg(x=agg.sum("device"))'),
            8,
            "column 'device' of type string has no sum",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            HEAD.format(result='s.groupBy("device")'), 8, "a stream has no 'groupBy'", marks=pytest.mark.slow
        ),
        (HEAD.format(result="s") + "\nshops = {}['north']\n", 10, "KeyError: 'north'"),
    ],
    ids=["column", "aggregate", "method", "exception"],
)
def test_the_command_says_one_line_and_nothing_else(tmp_path, text, line, said):
    file = tmp_path / "bad.py"
    file.write_text(text)
    command = [str(Path(sys.executable).with_name("headrace")), "plan", "bad.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    (only,) = done.stderr.splitlines()
    assert f"bad.py, line {line}: " in only and said in only


@pytest.fixture(autouse=True)
def _loud_loggers():
    """As they are in a process that has just begun, in which our own session has silenced them."""
    assert not logging.getLogger("SQLQueryContextLogger").isEnabledFor(logging.ERROR)
    yield
