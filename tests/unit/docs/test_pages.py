"""How pages are read: blocks, what is said before them, commands and the answers that fit."""

import pytest
from tools.pages import Command, blocks, commands

PAGE = """# Title

<!-- keeps running -->
```console
$ headrace broker --data log
listening on 127.0.0.1:9092, pid …
```

Words between, ```inline```.

<!-- file shop.py -->
```python
app = 1
```

```console
$ first
$ second
a

b
```
"""


def test_blocks_come_in_order_with_language_note_and_line():
    found = blocks(PAGE)
    assert [(each.language, each.note, each.line) for each in found] == [
        ("console", "keeps running", 4),
        ("python", "file shop.py", 12),
        ("console", "", 16),
    ]
    assert [each.file for each in found] == [None, "shop.py", None]
    assert found[1].text == "app = 1\n"


def test_a_command_has_the_lines_up_to_the_next():
    assert commands(blocks(PAGE)[2]) == [Command("first", ""), Command("second", "a\n\nb")]


@pytest.mark.parametrize(
    ("shown", "came", "fits"),
    [
        ("pid …", "pid 4711", True),
        ("pid …", "pid 4711\nmore", False),
        ("pid …", "the pid 4711", False),
        ("a (b)", "a (b)", True),
        ("a.b", "axb", False),
        ("", "", True),
        ("", "something", False),
        ("a\n…\nz", "a\nb\nc\nz", True),
        ("a\n…\nz", "a\nz", True),
        ("a\n…\nz", "a\nb", False),
        ("in …s", "in 0.4s", True),
    ],
)
def test_an_answer_fits_whole_or_not_at_all(shown, came, fits):
    assert bool(Command("", shown).answers().fullmatch(came)) is fits
