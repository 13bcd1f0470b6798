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
        ('from headrace import App\napp = App("a b")\n', "application name 'a b'"),
        ("def broken(:\n", "SyntaxError"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path, text, said):
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(ConfigError, match=said):
        import_app(tmp_path / "bad.py")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="there is no file"):
        import_app(tmp_path / "missing.py")
