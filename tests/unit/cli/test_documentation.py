"""docs/reference/cli.md knows every command, flag and exit code, and no flag that is not there."""

import re
from pathlib import Path

import pytest
import typer

from headrace.broker import BrokerSettings, GroupSettings
from headrace.cli.failures import ExitCode
from headrace.cli.main import app, run
from headrace.cli.servers import broker, console
from headrace.cli.servers.flags import title_of
from headrace.config import describe

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text()
SECTIONS = {
    title.strip(): body
    for title, body in re.findall(r"^## (headrace .*?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
}


def leaves(command, path):
    for name, child in getattr(command, "commands", {}).items():
        yield from leaves(child, f"{path} {name}")
    if not hasattr(command, "commands"):
        yield path, command


COMMANDS = dict(leaves(typer.main.get_command(app), "headrace"))


def flags(command):
    if command.name in ("broker", "console"):  # their parsers are argparse's
        made = (broker if command.name == "broker" else console).parser()
        return {flag for each in made._actions for flag in each.option_strings} - {"-h"}
    return {
        flag for each in command.params for flag in (*each.opts, *each.secondary_opts) if flag.startswith("-")
    }


def documented_defaults(section):
    rows = re.findall(r"^\| `(--[\w-]+)[^|]*\|([^|]*)\|", SECTIONS[section], re.M)
    said = {flag: re.search(r"Default: `?([\w.:/-]*\w)", text) for flag, text in rows}
    return {flag: found[1] for flag, found in said.items() if found}


def defaults_of_settings(made):
    """What the settings say of themselves, for the flags of commands whose flags are settings."""
    said = {
        each.option_strings[0]: re.search(r"Default: ([\w.:/-]*\w)", each.help or "")
        for each in made._actions
    }
    return {flag: found[1] for flag, found in said.items() if found}


def defaults(command):
    return {
        flag: f"{each.default:g}" if isinstance(each.default, float) else str(each.default)
        for each in command.params
        for flag in each.opts
        if each.default not in (None, False) and flag.startswith("--")
    }


def documented_flags(section):
    rows = re.findall(r"^\| (`-[^|]*) \|", SECTIONS[section], re.M)
    return {flag for row in rows for flag in re.findall(r"`(-[\w-]+)", row)}


def test_every_command_has_a_section_and_every_section_a_command():
    assert SECTIONS.keys() == COMMANDS.keys()


@pytest.mark.parametrize("path", COMMANDS)
def test_every_flag_is_documented_and_every_documented_flag_exists(path):
    assert documented_flags(path) == flags(COMMANDS[path]) - {"--help"}


@pytest.mark.parametrize("made", [broker.parser(), console.parser()], ids=["broker", "console"])
def test_defaults_of_settings_are_the_documented_ones(made):
    documented = documented_defaults(made.prog)
    assert {flag: text for flag, text in documented.items() if text != "none"} == defaults_of_settings(made)


@pytest.mark.parametrize("path", COMMANDS)
def test_a_documented_default_is_what_the_command_takes(path):
    taken = defaults(COMMANDS[path])
    documented = {flag: text for flag, text in documented_defaults(path).items() if flag in taken}
    assert documented == {flag: taken[flag] for flag in documented}


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_and_flag_has_a_help_text(path):
    assert COMMANDS[path].help
    assert [each.name for each in COMMANDS[path].params if not each.help] == []


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_takes_json(path):
    assert "--json" in flags(COMMANDS[path])


# They are a log, start one, look one up, or need none.
WITHOUT_A_LOG = {
    f"headrace {name}"
    for name in (
        "broker",
        "console",
        "demo",
        "plan",
        "state",
        "snapshot",
        "hooks test",
        "capture check",
        "capture fetch",
    )
}


@pytest.mark.parametrize("path", [path for path in COMMANDS if path not in WITHOUT_A_LOG])
def test_every_command_on_a_log_takes_bootstrap(path):
    assert {"--bootstrap", "-b"} <= flags(COMMANDS[path])


@pytest.mark.parametrize("code", list(ExitCode))
def test_every_exit_code_is_documented(code):
    assert re.search(rf"^\| {code.value} \|", PAGE, re.M)


@pytest.mark.parametrize("path", ["", "topics", "groups", "queues", "deadletters", "hooks", "users", "views"])
def test_no_summary_in_a_list_of_commands_is_cut_off_on_a_small_terminal(path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run([*path.split(), "--help"]) == 0
    _, _, listed = capsys.readouterr().out.partition("Commands:")
    assert listed and "..." not in listed, listed


@pytest.mark.parametrize(
    ("settings", "groups"),
    [(BrokerSettings, broker.BROKER_FLAGS), (GroupSettings, broker.GROUP_FLAGS)],
)
def test_every_flag_of_the_broker_stands_under_a_title(settings, groups):
    assert [name for name, *_ in describe(settings) if title_of(name, groups) is None] == []
    assert title_of("group_share_max_sessions", broker.GROUP_FLAGS) == "queues (share groups)"


def test_consume_is_another_name_of_tail(capsys):
    assert run(["consume", "--help"]) == 0
    assert "headrace tail" in capsys.readouterr().out
