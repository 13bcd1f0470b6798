"""Files that pages name in backticks exist, and pages that the code names, so that a reader can open them."""

import re
from pathlib import Path

import pytest
from tools.pages import DOCS, REPOSITORY

SOURCES = REPOSITORY / "src" / "headrace"
# A page, and the folders that its paths are relative to.
PAGES = (
    (DOCS / "explanation" / "architecture.md", (SOURCES,)),
    (REPOSITORY / "CONTRIBUTING.md", (SOURCES, REPOSITORY)),
    (REPOSITORY / "tests" / "README.md", (REPOSITORY / "tests", REPOSITORY)),
)
SOURCES_OF_NAMES = [
    path
    for folder in ("src", "tests", "tools", "benchmarks", "examples")
    for kind in ("*.py", "*.c", "*.h", "*.js")
    for path in sorted((REPOSITORY / folder).rglob(kind))
]
_PAGE = re.compile(r"docs/[\w./-]+\.md")
_NAMED = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|c|sh|js|toml))`")


def missing_files(text: str, folders: tuple[Path, ...]) -> list[str]:
    """The paths in backticks that none of the folders has."""
    return [name for name in _NAMED.findall(text) if not any((each / name).is_file() for each in folders)]


@pytest.mark.parametrize(("page", "folders"), PAGES, ids=lambda each: getattr(each, "name", ""))
def test_every_file_that_a_page_names_exists(page, folders):
    text = page.read_text()
    assert _NAMED.search(text)
    assert missing_files(text, folders) == []


def test_every_page_that_the_code_names_exists():
    named = {(path, page) for path in SOURCES_OF_NAMES for page in _PAGE.findall(path.read_text())}
    assert len(named) > 10
    assert {(path.name, page) for path, page in named if not (REPOSITORY / page).is_file()} == set()


def test_a_file_that_does_not_exist_is_noticed(tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "there.py").touch()
    text = "`here/there.py` and `here/gone.py`, but not `here/` or `gone.py`"
    assert missing_files(text, (tmp_path,)) == ["here/gone.py"]
