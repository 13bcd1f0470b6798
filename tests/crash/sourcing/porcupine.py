"""Porcupine (https://github.com/anishathalye/porcupine) as a judge of histories, built from `judge/`."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("judge")


def build_judge(folder):
    """The judge's program; skips where Go is missing, or Porcupine cannot be fetched."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    source, program = folder / "judge", folder / "judge" / "judge"
    shutil.copytree(_SOURCE, source)
    environment = {**os.environ, "GOFLAGS": "-mod=readonly"}
    fetched = subprocess.run(
        [go, "mod", "download"], cwd=source, env=environment, capture_output=True, text=True, timeout=300
    )
    if fetched.returncode:
        pytest.skip(f"Porcupine could not be fetched: {fetched.stderr.strip()[:200]}")
    subprocess.run([go, "build", "-o", program, "."], cwd=source, env=environment, check=True, timeout=300)
    return program


def judged(program, lines):
    """The verdict about the lines of `account_history.py`."""
    text = "".join(json.dumps(each) + "\n" for each in lines)
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True, timeout=1800)
    return json.loads(done.stdout)
