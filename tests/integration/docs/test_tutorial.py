"""docs/tutorial.md, from top to bottom: each command is run, and answers as the page says."""

import pytest
from tools.pages import DOCS, blocks

PAGE = (DOCS / "tutorial.md").read_text()

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("drivers"), pytest.mark.timeout(900)]


def test_the_tutorial_works_as_it_says(reader):
    for block in blocks(PAGE):
        reader.follow(block)
    assert reader.stop() == [0, 0]
