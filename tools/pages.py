"""Reads pages of the documentation: their code blocks, headings and links. For the tests that keep them true.

A comment before a block says what a test does with it:

    <!-- file shop.py -->      the block is this file
    <!-- keeps running -->     its command goes on in the background
    <!-- waits -->             its commands are repeated until they answer as shown
    <!-- not run: why -->      it is for the reader only
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
DOCS = REPOSITORY / "docs"

_BLOCK = re.compile(
    r"^(?:<!-- (?P<note>[^\n]*?) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
_LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(<?([^()\s>]+(?:\([^()]*\)[^()\s>]*)?)>?\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.M)
_ANCHOR = re.compile(r"""<a (?:id|name)=["']([^"']+)["']""")


@dataclass(frozen=True, slots=True)
class Block:
    """A code block: its language, its text, what the comment before it says, and its line."""

    language: str
    text: str
    note: str
    line: int

    @property
    def file(self) -> str | None:
        """The file that the block is, if it is one."""
        return self.note.removeprefix("file ") if self.note.startswith("file ") else None


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a `console` block, and what the page shows of its answer."""

    text: str
    answer: str

    def answers(self) -> re.Pattern[str]:
        """Matches the answer; `…` stands for anything within a line, alone on a line for any lines."""
        lines = [_pattern(line) for line in self.answer.splitlines()]
        return re.compile("".join(lines).removesuffix("\n"))


def blocks(page: str) -> list[Block]:
    """The code blocks of a page, in order."""
    return [
        Block(
            language=found["language"],
            text=found["text"],
            note=found["note"] or "",
            line=page.count("\n", 0, found.start("text")),
        )
        for found in _BLOCK.finditer(page)
    ]


def commands(block: Block) -> list[Command]:
    """The commands of a `console` block: lines that begin with `$ `, and their answers."""
    parts = re.split(r"^\$ ", block.text, flags=re.M)[1:]
    split = (part.partition("\n") for part in parts)
    return [Command(text, answer.rstrip("\n")) for text, _, answer in split]


def links(page: str) -> Iterator[str]:
    """Where the links and pictures of a page point, code left out."""
    prose = re.sub(r"`[^`\n]+`", "``", _BLOCK.sub("", page))
    return (found[1] for found in _LINK.finditer(prose))


def anchors(page: str) -> set[str]:
    """What `#…` may name on a page: its headings, as GitHub makes anchors of them."""
    prose = _BLOCK.sub("", page)
    made: dict[str, int] = {}
    found = set(_ANCHOR.findall(prose))
    for heading in _HEADING.findall(prose):
        anchor = _anchor(heading)
        number = made.get(anchor, 0)
        made[anchor] = number + 1
        found.add(f"{anchor}-{number}" if number else anchor)
    return found


def _anchor(heading: str) -> str:
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def _pattern(line: str) -> str:
    if line == "…":
        return r"(?:[^\n]*\n)*"
    return r"[^\n]*".join(re.escape(part) for part in line.split("…")) + "\n"
