"""A real browser on a real console over a real broker: one of each for the whole folder.

All tests here are in one xdist group, so that they run one after the other in one
worker: Playwright's loop must be gone before tests that run loops of their own.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.browser.consoles import Console
from tests.browser.shop import Shop

from headrace.testing.broker import BrokerProcess

HERE = Path(__file__).parent
PATIENCE_MS = 60_000  # conditions are awaited; this only bounds how long a failure takes
SIZE = {"width": 1280, "height": 860}


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="package")
def chromium():
    """Debian's chromium, driven by Playwright."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("no chromium on the PATH; install it (for example: apt-get install chromium)")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def broker(tmp_path_factory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("log")) as broker:
        yield broker


@pytest.fixture(scope="package")
def shop(tmp_path_factory, broker) -> Iterator[Shop]:
    """An application that seems to run: the tests are its driver."""
    made = Shop(tmp_path_factory.mktemp("data"), broker.bootstrap)
    yield made
    made.close()


@pytest.fixture(scope="package")
def console(shop) -> Iterator[Console]:
    with Console(bootstrap=shop.bootstrap, data=shop.data) as console:
        yield console


@pytest.fixture
def open_page(chromium, console) -> Iterator[Callable]:
    """Opens an address of the console in a context of its own; whatever goes wrong there fails the test."""
    contexts, troubles = [], []

    def open_(route: str = "", *, url: str = "", script: str = "", troubles_allowed: bool = False, **options):
        context = chromium.new_context(**{"viewport": SIZE, **options})
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        context.add_init_script(script)
        page = context.new_page()
        page.troubles = []
        page.on("pageerror", lambda error: page.troubles.append(f"error: {error}"))
        page.on(
            "console", lambda said: said.type == "error" and page.troubles.append(f"console: {said.text}")
        )
        page.goto(f"{url or console.url}/#/{route}")
        if not troubles_allowed:
            troubles.append(page.troubles)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert not any(troubles), troubles
