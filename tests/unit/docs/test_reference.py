"""docs/reference/python.md is what the code says, and has every public name."""

from tools.reference import CHAPTERS, COMMAND, PAGE, page, signature

import headrace
from headrace import testing


def test_the_page_is_made_from_the_code_as_it_is():
    assert PAGE.read_text() == page(), f"the code says something else now; run: {COMMAND}"


def test_every_public_name_of_an_application_and_its_tests_is_there():
    listed = {(chapter.module, entry.name) for chapter in CHAPTERS for entry in chapter.entries}
    public = {("headrace", name) for name in headrace.__all__ if name != "__version__"}
    public |= {("headrace.testing", name) for name in testing.__all__}
    assert public <= listed


def test_nothing_on_the_page_is_without_an_explanation():
    sections = PAGE.read_text().split("\n#")
    code_alone = [each.partition("\n")[0] for each in sections if each.rstrip().endswith("```")]
    assert code_alone == ["# headrace.errors"], "these have no docstring"  # a tree explains itself


def test_a_long_signature_takes_a_line_for_each_argument():
    def long(
        a: int, /, b: str = "x", *rest: bytes, c: "dict[str, int] | None" = None, **more: object
    ) -> None:
        pass

    shown = signature("a_rather_long_name_of_a_function", long)
    assert shown.splitlines() == [
        "a_rather_long_name_of_a_function(",
        "    a: int,",
        "    /,",
        '    b: str = "x",',
        "    *rest: bytes,",
        "    c: dict[str, int] | None = None,",
        "    **more: object,",
        ") -> None",
    ]
