"""docs/cli.md knows every command, flag and exit code, and no flag that is not there."""

import re
from pathlib import Path

import pytest
import typer

from headrace.cli import broker, console
from headrace.cli.exit_codes import ExitCode
from headrace.cli.main import app

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
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


def documented_flags(section):
    rows = re.findall(r"^\| (`-[^|]*) \|", SECTIONS[section], re.M)
    return {flag for row in rows for flag in re.findall(r"`(-[\w-]+)", row)}


def test_every_command_has_a_section_and_every_section_a_command():
    assert SECTIONS.keys() == COMMANDS.keys()


@pytest.mark.parametrize("path", COMMANDS)
def test_every_flag_is_documented_and_every_documented_flag_exists(path):
    assert documented_flags(path) == flags(COMMANDS[path]) - {"--help"}


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_and_flag_has_a_help_text(path):
    assert COMMANDS[path].help
    assert [each.name for each in COMMANDS[path].params if not each.help] == []


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_takes_json(path):
    assert "--json" in flags(COMMANDS[path])


# They are a log, start one, look one up, or need none.
WITHOUT_A_LOG = {f"headrace {name}" for name in ("broker", "console", "demo", "plan", "hooks test")}


@pytest.mark.parametrize("path", [path for path in COMMANDS if path not in WITHOUT_A_LOG])
def test_every_command_on_a_log_takes_bootstrap(path):
    assert {"--bootstrap", "-b"} <= flags(COMMANDS[path])


@pytest.mark.parametrize("code", list(ExitCode))
def test_every_exit_code_is_documented(code):
    assert re.search(rf"^\| {code.value} \|", PAGE, re.M)
