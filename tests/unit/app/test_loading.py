"""An application from its file, and what is wrong with it."""

import pytest

from headrace.app.loading import import_app
from headrace.errors import ConfigError

GOOD = 'from headrace import App\napp = App("shop")\n'


def test_the_one_application_of_a_file_is_found(tmp_path):
    (tmp_path / "good.py").write_text(GOOD)
    assert import_app(tmp_path / "good.py").name == "shop"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "has 0 applications"),
        (GOOD + 'other = App("two")\n', "has 2 applications"),
        (GOOD + "import nothere\n", "line 3: ModuleNotFoundError: No module named 'nothere'"),
        ('from headrace import App\napp = App("a b")\n', "bad.py, line 2: application name 'a b'"),
        ("x = 1\ndef broken(:\n", "bad.py, line 2: SyntaxError: invalid syntax"),
        (GOOD + 's = app.stream("a b", schema="x int")\n', "bad.py, line 3: topic name 'a b'"),
        (GOOD + 's = app.stream("a", schema="x int", partitions=0)\n', "line 3: .*partitions=0"),
        (GOOD + "app.strem('a')\n", "line 3: App has no 'strem'; did you mean 'stream'"),
        (GOOD + "[].appendd(1)\n", "line 3: AttributeError: 'list' object has no attribute 'appendd'"),
        (
            GOOD + 's = app.stream("a", schema="at timestamp", eventtime="at")\n',
            "line 3: App.stream: there is no argument 'eventtime'; did you mean 'event_time'",
        ),
        (GOOD + "int(eventtime=1)\n", "line 3: TypeError: 'eventtime' is an invalid keyword argument"),
        (
            GOOD + 's = app.stream("a", schema="at timestamp", event_time="att")\n',
            "line 3: event_time='att' is not a field of the schema 'at timestamp'; did you mean 'at'",
        ),
        ("from headrace import App, aggr\n", "line 1: headrace: there is no name 'aggr'; did you mean 'agg'"),
        ("from json import lods\n", "line 1: ImportError: cannot import name 'lods' from 'json'"),
        (
            GOOD.replace("import App", "import App, agg") + 'agg.average("x")\n',
            "line 3: there is no aggregate 'average'; use 'mean'. There is count",
        ),
        (
            GOOD.replace("import App", "import App, agg") + 'agg.maxx("x")\n',
            "line 3: there is no aggregate 'maxx'; did you mean 'max'",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path, text, said):
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(ConfigError, match=said):
        import_app(tmp_path / "bad.py")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="there is no file"):
        import_app(tmp_path / "missing.py")


def test_a_mistake_in_a_module_beside_the_file_is_said_with_that_module_s_line(tmp_path):
    (tmp_path / "beside_it.py").write_text("x = 1\n\ny = x / 0\n")
    (tmp_path / "bad.py").write_text(GOOD + "import beside_it\n")
    with pytest.raises(ConfigError, match=r"beside_it\.py, line 3: ZeroDivisionError: division by zero"):
        import_app(tmp_path / "bad.py")


def test_a_pyspark_column_before_there_is_a_spark_says_what_to_write_instead(tmp_path, monkeypatch):
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    column = 'from pyspark.sql import functions as F\nwhen = F.col("at")\n'
    (tmp_path / "bad.py").write_text(GOOD + column)
    with pytest.raises(
        ConfigError, match=r'line 4: Spark starts once .*event time as text.* event_time="at"'
    ):
        import_app(tmp_path / "bad.py")


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (
            's.window("1 minute").agg(n=agg.count())',
            r"'1 minute' is not a window; use tumbling\(\"1 minute\"\)",
        ),
        ('s.window(tumbling("1 minute")).agg(n="count")', "n='count' is not an aggregate; use agg.count"),
        ('s.group_by("x").agg(n=sum)', "n=<built-in function sum> is not an aggregate; use agg.count"),
        ('s.group_by("x").agg()', "agg.. needs at least one aggregate"),
    ],
)
def test_what_is_no_window_and_no_aggregate_is_said_with_its_place(tmp_path, result, said):
    (tmp_path / "bad.py").write_text(
        GOOD.replace("import App", "import App, agg, tumbling")
        + f's = app.stream("a", schema="x int")\n{result}\n'
    )
    with pytest.raises(ConfigError, match=f"line 4: {said}"):
        import_app(tmp_path / "bad.py")


def test_results_without_names_are_said_to_need_them(tmp_path):
    text = GOOD.replace("import App", "import App, agg, tumbling") + (
        's = app.stream("a", schema="x int")\ns.window(tumbling("1 minute")).agg(agg.sum("x"))\n'
    )
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(ConfigError, match=r"line 4: the results of .agg need names, as in .agg\(total="):
        import_app(tmp_path / "bad.py")
