"""docs/reference/settings.md has a row for every setting, with its default and its help."""

from pathlib import Path

import pytest

from headrace.broker import BrokerSettings
from headrace.client import Connection
from headrace.config import describe
from headrace.console import ConsoleSettings
from headrace.groups import GroupSettings
from headrace.storage.topic_config import SETTINGS as TOPIC_SETTINGS
from headrace.streams.source.options import SourceOptions

ROOMS = (BrokerSettings, GroupSettings, Connection, ConsoleSettings, SourceOptions)
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text()


def row(name, kind, default, help_text):
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    return f"| `{name}` | {kind} | {f'`{shown}`' if shown else ''} | {help_text} |"


@pytest.mark.parametrize("settings", ROOMS)
def test_every_setting_is_documented_as_it_is(settings):
    missing = [line for line in (row(*each) for each in describe(settings)) if line not in PAGE]
    assert not missing, "put these rows into docs/reference/settings.md:\n" + "\n".join(missing)


def test_every_setting_of_a_topic_is_documented_as_it_is():
    rows = [row(each.name, each.kind, each.default, each.help) for each in TOPIC_SETTINGS.values()]
    assert [line for line in rows if line not in PAGE] == []


def test_no_row_is_left_of_a_setting_that_is_gone():
    known = {row(*each) for room in ROOMS for each in describe(room)}
    known |= {row(each.name, each.kind, each.default, each.help) for each in TOPIC_SETTINGS.values()}
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert set(rows) <= known
