"""docs/guides/event-sourcing.md, from top to bottom: each command is run, and answers as the page says."""

from tools.pages import DOCS, blocks

PAGE = (DOCS / "guides" / "event-sourcing.md").read_text()


def test_the_guide_works_as_it_says(reader):
    for block in blocks(PAGE):
        reader.follow(block)
    assert set(reader.stop()) == {0}
