"""Applications that are run from Python: their options, and runs in the background."""

import contextlib
import threading
from pathlib import Path

import pytest

from headrace import App
from headrace.app.background_run import BackgroundRun
from headrace.app.run.entry import run_options
from headrace.client import Connection, Identity
from headrace.errors import ConfigError, RequestError


def view():
    return None


def test_options_come_from_the_arguments_then_the_environment_then_the_defaults(tmp_path):
    app = App("a")
    bare = run_options(app, {}, {})
    assert (bare.data, bare.bootstrap, bare.identity) == (Path(".headrace/a"), None, Identity())
    environment = {"HEADRACE_BOOTSTRAP": "log:9092", "HEADRACE_DATA": "/shared/a", "HEADRACE_USER": "shop"}
    told = run_options(app, {"data": None}, environment)
    assert (told.data, told.bootstrap, told.identity.user) == (Path("/shared/a"), "log:9092", "shop")
    given = run_options(app, {"data": tmp_path, "bootstrap": "other:9092", "trigger_ms": 7}, environment)
    assert (given.data, given.bootstrap, given.trigger_ms) == (tmp_path, "other:9092", 7)


def test_an_option_that_does_not_exist_is_named():
    with pytest.raises(ConfigError, match="no option 'tigger_ms'"):
        run_options(App("a"), {"tigger_ms": 7}, {})


def test_the_file_of_an_application_is_that_of_its_views():
    app = App("a")
    app.view(view)
    assert run_options(app, {}, {}).file == Path(__file__)
    assert run_options(App("b"), {}, {}).file is None


class Runs:
    """A run that ends when it is told to, or fails."""

    connection = Connection(bootstrap_servers="log:1")

    def __init__(self, failure=None):
        self.failure, self.told, self.closed = failure, threading.Event(), False

    def wait(self):
        self.told.wait()
        if self.failure is not None:
            raise self.failure

    def stop(self):
        self.told.set()

    @contextlib.contextmanager
    def __call__(self):
        yield self
        self.closed = True


def test_a_run_in_the_background_ends_when_it_is_stopped():
    runs = Runs()
    run = BackgroundRun.begin("a", runs)
    assert run.is_running and run.bootstrap == "log:1" and not run.wait(0)
    run.stop()
    run.stop()
    assert runs.closed and not run.is_running and run.wait()


def test_what_a_run_in_the_background_fails_with_is_raised_where_it_is_waited_for():
    runs = Runs(RequestError("no such topic"))
    run = BackgroundRun.begin("a", runs)
    runs.told.set()
    with pytest.raises(RequestError, match="no such topic"):
        run.wait()


def test_what_keeps_a_run_from_starting_is_raised_at_once():
    @contextlib.contextmanager
    def refused():
        raise ConfigError("relative")
        yield

    with pytest.raises(ConfigError, match="relative"):
        BackgroundRun.begin("a", refused)
