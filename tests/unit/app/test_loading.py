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
        (GOOD + "app.strem('a')\n", "line 3: AttributeError: 'App' object has no attribute 'strem'"),
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
