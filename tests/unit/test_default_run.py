"""Which tests that failed `make test` runs again: `tools/default_run.py`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools.default_run import worth_another_try

# Without the plugins that our own tests want, which take seconds to import in each process.
ALONE = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist"}
RUN = Path(__file__).parents[2] / "tools" / "default_run.py"
BROWSER = "tests/browser/test_topics.py::test_one@browser"
CLIENTS = "tests/integration/clients/test_groups.py::test_two[java]"


def test_few_failures_of_real_processes_are_tried_again_without_their_group():
    assert worth_another_try([BROWSER, CLIENTS]) == [BROWSER.removesuffix("@browser"), CLIENTS]


@pytest.mark.parametrize(
    "failures",
    [
        [],
        [BROWSER, "tests/crash/test_kills.py::test_three"],
        ["tests/unit/test_java.py::test_four"],
        [BROWSER, CLIENTS, CLIENTS + "x"],
        ["tests/integration/test_feed.py"],  # could not even be read
    ],
    ids=["none", "durability", "pure", "many", "a file"],
)
def test_nothing_is_tried_again_where_one_of_them_may_not_be(failures):
    assert worth_another_try(failures) == []


@pytest.mark.parametrize(
    ("folder", "body", "code", "said"),
    [
        (
            "integration",
            "seen = pathlib.Path('seen'); first = not seen.exists(); seen.touch(); assert not first",
            0,
            "UNSTABLE",
        ),
        ("integration", "assert False", 1, "Failed twice"),
        (
            "crash",
            "seen = pathlib.Path('seen'); first = not seen.exists(); seen.touch(); assert not first",
            1,
            None,
        ),
        ("integration", "pass", 0, None),
    ],
    ids=["unstable", "broken", "durability", "well"],
)
def test_a_run_says_what_failed_first_and_fails_for_what_fails_twice(tmp_path, folder, body, code, said):
    tests = tmp_path / "tests" / folder
    tests.mkdir(parents=True)
    (tests / "test_it.py").write_text(f"import pathlib\n\ndef test_it():\n    {body}\n")
    run = subprocess.run(
        [sys.executable, RUN, "-n", "2", "--dist", "loadgroup"],
        cwd=tmp_path,
        env=ALONE,
        capture_output=True,
        text=True,
    )
    assert run.returncode == code, run.stdout + run.stderr
    assert (
        (f"tests/{folder}/test_it.py::test_it" in run.stdout.split(said)[-1])
        if said
        else "alone" not in run.stdout
    )
