"""Pages speak of the product: not of work in progress, of who did it when, or of pages that do not exist."""

import re
from pathlib import Path

import pytest
from tools.pages import DOCS, REPOSITORY

PAGES = sorted(
    [
        *REPOSITORY.glob("*.md"),
        *DOCS.rglob("*.md"),
        *REPOSITORY.glob("examples/*/README.md"),
        *REPOSITORY.glob("benchmarks/*.md"),
        *REPOSITORY.glob("tests/*.md"),
    ]
)
_WORK = re.compile(
    r"\b(issues? \d+|sessions? \d+|tasks? \d+|(this|that|the same|late) (evening|afternoon|night)|at noon"
    r"|near midnight|STATUS\.md|DESIGN (says|has))",
    re.I,
)


def named(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def traces_of_work(text: str) -> list[str]:
    return [found[0] for found in _WORK.finditer(text)]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_page_speaks_of_who_worked_when(page):
    assert traces_of_work(page.read_text()) == []


def test_a_trace_of_work_is_noticed():
    text = (
        "As issue 5 asked, tried that evening. DESIGN says so, see STATUS.md. A session of 30 minutes ends."
    )
    assert traces_of_work(text) == ["issue 5", "that evening", "DESIGN says", "STATUS.md"]
