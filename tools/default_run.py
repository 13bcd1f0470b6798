"""The default tests, and once more, alone, the few of real processes and browsers that failed.

A test of real clients, Spark or a browser may fail for what the machine was doing. It
is run again by itself, and the run says which these were, so that somebody looks. What
fails twice has failed. Nothing else gets a second try: pure decisions and models have no
such excuse, nor have the promises of durability (`crash`) and of refusal (`fuzz`), and
more than a few failures are not the machine's. `tests/README.md` explains it.
"""

import compileall
import json
import re
import subprocess
import sys
from pathlib import Path

TRIED_AGAIN = ("tests/integration/", "tests/browser/")
AT_MOST = 2
FAILED = 1  # pytest's exit code: tests ran, and some failed
FAILURES = Path(".pytest_cache/v/cache/lastfailed")


def main(arguments: list[str]) -> int:
    FAILURES.unlink(missing_ok=True)
    # Where Python writes no bytecode, each process would compile what was edited since `make setup`.
    compileall.compile_dir("src", quiet=2)
    code = _pytest(arguments)
    again = worth_another_try(_failures()) if code == FAILED else []
    if not again:
        return code
    names = "".join(f"\n  {each}" for each in again)
    print(f"\nOnce more, alone:{names}", flush=True)
    if _pytest(again):
        print(f"\nFailed twice, or one of these did:{names}")
        return FAILED
    print(f"\nUNSTABLE: failed above, and passed alone; find out why:{names}")
    return 0


def worth_another_try(failures: list[str]) -> list[str]:
    """The tests to run again, which are all that failed, or none."""
    names = [re.sub(r"@[\w-]+$", "", each) for each in failures]  # without the group that xdist adds
    few = 0 < len(names) <= AT_MOST
    return names if few and all(each.startswith(TRIED_AGAIN) and "::" in each for each in names) else []


def _pytest(arguments: list[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments]).returncode


def _failures() -> list[str]:
    return list(json.loads(FAILURES.read_text())) if FAILURES.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
