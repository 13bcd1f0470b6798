"""A reader of pages, with an empty folder and ports of their own."""

import shutil

import pytest
from tests.integration.docs.page_reader import Reader

from headrace.testing.broker import held_port


@pytest.fixture
def reader(tmp_path):
    if shutil.which("curl") is None or shutil.which("bash") is None:
        pytest.skip("a page's reader needs curl and bash")
    folder = tmp_path / "work"
    folder.mkdir()
    with held_port() as broker, held_port() as console:
        following = Reader(folder, *(f"127.0.0.1:{each.getsockname()[1]}" for each in (broker, console)))
        yield following
        following.kill()
