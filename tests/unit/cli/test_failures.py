"""An error is one line, and all of it for whoever asks."""

import pytest

from headrace.cli.main import run

NO_FILE = "error: there is no file missing.py; name the Python file of an application"


def test_an_error_is_one_line(capsys, monkeypatch):
    monkeypatch.delenv("HEADRACE_DEBUG", raising=False)
    assert run(["plan", "missing.py"]) == 2
    assert capsys.readouterr().err.splitlines() == [NO_FILE]


@pytest.mark.parametrize(("flags", "variable"), [(["--traceback"], "0"), ([], "1")])
def test_the_traceback_is_shown_on_request(capsys, monkeypatch, flags, variable):
    monkeypatch.setenv("HEADRACE_DEBUG", variable)
    assert run(["plan", "missing.py", *flags]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("Traceback") and said[-1] == NO_FILE
