"""docs/reference/http.md: its examples run as they stand, and its table has every route."""

import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from tests.integration.console.conftest import row
from tests.integration.console.shop import Shop

from headrace.client import LATEST, RawFetcher
from headrace.console.routes import ROUTES
from headrace.testing.console import ConsoleProcess

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "http.md").read_text()
EXAMPLES = [
    (command, expected.strip("\n"))
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.M | re.S)
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M)
]


@pytest.fixture(scope="module")
def served(our_log, make_topic, tmp_path_factory):
    """A console on a view that follows its topic, as it would with an application."""
    topic = make_topic("orders-of-the-page", 2)
    shop = Shop(tmp_path_factory.mktemp("page"), our_log.bootstrap_servers, topic=topic)
    shop.apply([row(region, minute, minute) for region in ("eu", "us") for minute in range(10)])
    stop = threading.Event()

    def follow():
        with RawFetcher(our_log) as fetcher:
            known = None
            while not stop.wait(0.05):
                ends = fetcher.offsets(topic, LATEST)
                if ends != known:
                    shop.apply([row("us", 0, sum(ends.values()))], offsets=ends)
                    known = ends

    follower = threading.Thread(target=follow)
    follower.start()
    with ConsoleProcess(our_log.bootstrap_servers, data=shop.data, heartbeat_ms=200) as console:
        yield console.url, topic
    stop.set()
    follower.join()


@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples need curl")
def test_every_example_answers_what_the_page_says(served):
    url, topic = served
    assert len(EXAMPLES) >= 9
    for command, expected in EXAMPLES:
        command = command.replace("http://127.0.0.1:8080", url).replace(
            "/topics/orders/", f"/topics/{topic}/"
        )
        found = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=90)
        pattern = ".*".join(re.escape(part) for part in expected.split("…"))
        assert re.fullmatch(pattern, found.stdout.strip("\n"), re.S), (
            f"{command}\n{found.stdout}{found.stderr}"
        )


def test_the_table_has_every_route_and_no_other():
    rows = set(re.findall(r"^\| `(\w+ /[^`]*)` \| (\w+) \| (.*) \|$", PAGE, re.M))
    assert rows == {
        (f"{each.method} {each.path.replace(':path}', '}')}", each.role.name.lower(), each.summary)
        for each in ROUTES
        if each.tag != "page"
    }
