"""Pages, comments and docstrings speak of the product: not of work in progress, nor of who did it when."""

import ast
import io
import re
import tokenize
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
SOURCES = [
    path
    for folder in ("src", "tests", "tools", "examples")
    for kind in ("*.py", "*.c", "*.js")
    for path in sorted((REPOSITORY / folder).rglob(kind))
]
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_WORK = re.compile(
    r"\b(issues? \d+|sessions? \d+|tasks? \d+|(this|that|the same|late) (evening|afternoon|night)|at noon"
    r"|near midnight|STATUS\.md|DESIGN (says|has))",
    re.I,
)


def named(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def traces_of_work(text: str) -> list[str]:
    return [found[0] for found in _WORK.finditer(text)]


def prose_of(source: str) -> str:
    """The comments and docstrings of a Python file."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [each.string for each in tokens if each.type == tokenize.COMMENT]
    nodes = [each for each in ast.walk(ast.parse(source)) if isinstance(each, _DOCUMENTED)]
    return "\n".join([*comments, *(ast.get_docstring(each) or "" for each in nodes)])


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_page_speaks_of_who_worked_when(page):
    assert traces_of_work(page.read_text()) == []


def test_no_comment_and_no_docstring_speaks_of_who_worked_when():
    found = {}
    for path in SOURCES:
        text = path.read_text()
        if traces_of_work(text):  # parsed only then: most files have nothing like it in any string
            found[named(path)] = traces_of_work(prose_of(text) if path.suffix == ".py" else text)
    assert {name: traces for name, traces in found.items() if traces} == {}


def test_prose_of_a_file_is_its_comments_and_docstrings():
    source = '"""Task 1."""\n\nx = "task 2"  # task 3\n\ndef f():\n    """Task 4."""\n'
    assert traces_of_work(prose_of(source)) == ["task 3", "Task 1", "Task 4"]


def test_a_trace_of_work_is_noticed():
    text = (
        "As issue 5 asked, tried that evening. DESIGN says so, see STATUS.md. A session of 30 minutes ends."
    )
    assert traces_of_work(text) == ["issue 5", "that evening", "DESIGN says", "STATUS.md"]
