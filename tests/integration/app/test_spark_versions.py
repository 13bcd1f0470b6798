"""Versions of PySpark other than the locked one: the one before works, older ones are refused in one line.

Each is installed into a folder of its own and put in front of the path; the rest is as always.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from app_runs import new_topic, rows, send, traffic
from topics import create_topic

import headrace as headrace_package

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("cluster")]

APP = """
from headrace import App, agg, tumbling
app = App("versions")
events = app.stream({topic!r}, schema="place string, amount double, at long", event_time="at", partitions=2)

@app.view
def counts():
    windows = events.where("amount > -2").window(tumbling("10 seconds"), by="place")
    return windows.agg(n=agg.count(), sum=agg.sum("amount"))
"""


def installed(version, folder):
    """The folder with that PySpark; skips where no registry can be reached."""
    kept = os.environ.get(f"HEADRACE_TEST_PYSPARK_{version.replace('.', '_')}")
    if kept:
        return kept
    python = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    command = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    done = subprocess.run([*command, f"pyspark=={version}.*"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pip cannot install PySpark {version}: {done.stderr.strip()[-200:]}")
    return str(folder)


def run_with(version, file, log, data, tmp_path):
    path = [installed(version, tmp_path / "pyspark"), str(Path(headrace_package.__file__).parents[1])]
    arguments = ["run", file, "--bootstrap", log.bootstrap_servers, "--data", data, "--until-caught-up"]
    return subprocess.run(
        [str(Path(sys.executable).with_name("headrace")), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("version", "works"), [("4.2", True), ("4.1", False)])
def test_pyspark_from_4_2_on_runs_an_application_and_older_ones_are_refused(
    version, works, our_log, tmp_path
):
    topic, file, data = new_topic(), tmp_path / "app.py", tmp_path / "data"
    file.write_text(APP.format(topic=topic))
    create_topic(our_log, 2, topic)
    for partition in (0, 1):
        send(our_log, topic, traffic(partition), partition)
    ran = run_with(version, file, our_log, data, tmp_path)
    if works:
        assert ran.returncode == 0, ran.stderr
        assert len(rows(f"sqlite:///{data / 'views.db'}")) > 10
    else:
        (line,) = ran.stderr.strip().splitlines()
        assert ran.returncode == 2 and f"PySpark {version}" in line and "use PySpark 4.2 or 4.3" in line
