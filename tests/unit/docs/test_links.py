"""Every link of every page leads somewhere: files, headings, pictures; and every page can be found."""

from pathlib import Path
from urllib.parse import unquote

import pytest
from tools.pages import DOCS, REPOSITORY, anchors, links

PAGES = sorted(
    [
        *REPOSITORY.glob("*.md"),
        *DOCS.rglob("*.md"),
        *REPOSITORY.glob("examples/*/README.md"),
        *REPOSITORY.glob("benchmarks/*.md"),
        *REPOSITORY.glob("tests/*.md"),
    ]
)
ELSEWHERE = ("http://", "https://", "mailto:")


def named(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def dead_links(page: Path) -> list[str]:
    """The links of a page that lead nowhere, with what is missing."""
    return [
        f"{link}: {missing}"
        for link in links(page.read_text())
        if not link.startswith(ELSEWHERE) and (missing := what_is_missing(page, link))
    ]


def what_is_missing(page: Path, link: str) -> str:
    path, _, anchor = unquote(link).partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return f"there is no {path}"
    if anchor and anchor not in anchors(target.read_text()):
        return f"{target.name} has no heading #{anchor}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page):
    assert dead_links(page) == []


def test_every_page_is_within_two_clicks_of_the_readme():
    reached = {REPOSITORY / "README.md"}
    for _ in range(2):
        reached |= {
            (page.parent / link.partition("#")[0]).resolve()
            for page in reached
            if page.suffix == ".md" and page.exists()
            for link in links(page.read_text())
            if not link.startswith((*ELSEWHERE, "#"))
        }
    assert {named(page) for page in set(DOCS.rglob("*.md")) - reached} == set()


def test_what_leads_nowhere_is_noticed(tmp_path):
    (tmp_path / "other.md").write_text("# A `name`, and [more](x.md)!\n\n## Twice\n\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](other.md#a-name-and-more) [c](other.md#twice-1) ![d](gone.svg) "
        "[e](other.md#thrice) [f](#nowhere) `[code](gone.md)` [g](https://example.org/)\n"
        "```\n[h](gone.md)\n```\n"
    )
    assert [each.partition(":")[0] for each in dead_links(page)] == [
        "gone.svg",
        "other.md#thrice",
        "#nowhere",
    ]
