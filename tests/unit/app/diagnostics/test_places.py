"""Where in a user's own files something was written."""

import os
import sysconfig
from pathlib import Path

import headrace
from headrace.app.diagnostics.places import Place, calling_place, is_users, place_in, place_of

PACKAGE = Path(headrace.__file__).parent


def test_files_of_python_of_packages_and_of_headrace_are_not_the_user_s():
    assert is_users(__file__)
    assert is_users(str(PACKAGE / "demo" / "shop.py"))  # an ordinary application
    for file in (os.__file__, str(PACKAGE / "app" / "stream.py"), "<string>"):
        assert not is_users(file)
    assert not is_users(f"{sysconfig.get_paths()['purelib']}/pyspark/worker.py")
    assert not is_users("/spark/python/lib/pyspark.zip/pyspark/worker.py")


def test_the_calling_place_is_the_user_s_line():
    place = calling_place()
    assert place is not None and (place.file, place.line) == (__file__, place_line())


def place_line() -> int:
    return place_of(test_the_calling_place_is_the_user_s_line).line + 1


def test_the_place_of_an_exception_is_the_last_line_of_the_user_s_that_it_came_through():
    try:
        Path("/nowhere/at/all").read_text()
    except OSError as error:
        found = place_in(error)
    assert found is not None and found.file == __file__


def test_a_path_is_as_short_as_the_current_folder_allows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(Place(str(tmp_path / "apps" / "shop.py"), 7)) == "apps/shop.py, line 7"
    assert str(Place("/elsewhere/shop.py", 7)) == "/elsewhere/shop.py, line 7"
