"""The syntax of topic patterns: what RE2 knows, as far as names of topics need it.

Literals, `.`, classes (`[a-c]`, `[^.]`, `\\d`, `\\w`, `\\s`), groups, `|`, `*`, `+`, `?`, `{m,n}`,
`^` and `$`. Back-references, look-around, flags and word boundaries are refused.
"""

import string
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = [
    "ALPHABET",
    "Alternatives",
    "Characters",
    "End",
    "NameStart",
    "PatternError",
    "RegexNode",
    "Repeat",
    "Sequence",
    "parse",
]

ALPHABET: Final = string.ascii_letters + string.digits + "._-"
_ALL: Final = frozenset(ALPHABET)
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_DIGIT: Final = frozenset(string.digits)
_ESCAPES: Final = {
    "d": _DIGIT,
    "D": _ALL - _DIGIT,
    "w": _WORD,
    "W": _ALL - _WORD,
    "s": frozenset[str](),
    "S": _ALL,
}
_MAX_DEPTH: Final = 30
_MAX_REPEAT: Final = 1_000


class PatternError(Exception):
    """The pattern is not one of ours; the message ends a sentence that begins "cannot be used:"."""


@dataclass(frozen=True, slots=True)
class Characters:
    """One character of a set."""

    allowed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other."""

    parts: tuple["RegexNode", ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Any one of the parts."""

    parts: tuple["RegexNode", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The part at least and at most so many times; `most` None: no limit."""

    part: "RegexNode"
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class NameStart:
    """The beginning of the name."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of the name."""


RegexNode: TypeAlias = Characters | Sequence | Alternatives | Repeat | NameStart | End


def parse(pattern: str) -> RegexNode:
    """The pattern's tree; raises PatternError."""
    parser = _Parser(pattern)
    node = parser.alternatives(depth=0)
    if parser.rest:
        raise PatternError(f"there is an unmatched ')' at position {parser.position}")
    return node


class _Parser:
    """Recursive descent over the pattern, one character ahead."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0

    @property
    def rest(self) -> str:
        return self.pattern[self.position :]

    def peek(self) -> str:
        return self.pattern[self.position : self.position + 1]

    def take(self) -> str:
        character = self.peek()
        if not character:
            raise PatternError("it ends too early")
        self.position += 1
        return character

    def accept(self, text: str) -> bool:
        if self.pattern.startswith(text, self.position):
            self.position += len(text)
            return True
        return False

    def alternatives(self, depth: int) -> RegexNode:
        if depth > _MAX_DEPTH:
            raise PatternError(f"its groups are nested deeper than {_MAX_DEPTH}")
        parts = [self.sequence(depth)]
        while self.accept("|"):
            parts.append(self.sequence(depth))
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def sequence(self, depth: int) -> RegexNode:
        parts: list[RegexNode] = []
        while self.peek() and self.peek() not in "|)":
            parts.append(self.repeated(self.atom(depth)))
        return Sequence(tuple(parts))

    def repeated(self, part: RegexNode) -> RegexNode:
        bounds = self.bounds()
        if bounds is None:
            return part
        self.accept("?")  # lazy or not makes no difference to whether a name matches
        if self.peek() and self.peek() in "*+?{":
            raise PatternError(f"there is a repetition of a repetition at position {self.position}")
        return Repeat(part, *bounds)

    def bounds(self) -> tuple[int, int | None] | None:
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(self.peek())
        if simple is not None:
            self.take()
            return simple
        return self.counted() if self.accept("{") else None

    def counted(self) -> tuple[int, int | None]:
        inside, brace, _ = self.rest.partition("}")
        least, comma, most = inside.partition(",")
        if not brace or not least.isdecimal() or (most and not most.isdecimal()):
            raise PatternError("a '{' must open a repetition such as {2} or {1,3}")
        self.position += len(inside) + 1
        low = int(least)
        high = (int(most) if most else None) if comma else low
        if low > _MAX_REPEAT or (high is not None and (high > _MAX_REPEAT or high < low)):
            raise PatternError(f"the repetition {{{inside}}} is out of range")
        return low, high

    def atom(self, depth: int) -> RegexNode:
        character = self.take()
        match character:
            case "(":
                return self.group(depth)
            case "[":
                return Characters(self.bracket())
            case ".":
                return Characters(_ALL)
            case "^":
                return NameStart()
            case "$":
                return End()
            case "\\":
                return Characters(self.escape())
            case "*" | "+" | "?" | "{":
                raise PatternError(f"{character!r} at position {self.position - 1} has nothing to repeat")
        return Characters(frozenset(character) & _ALL)

    def group(self, depth: int) -> RegexNode:
        if self.peek() == "?" and not self.accept("?:"):
            raise PatternError("of the groups that begin with '(?' only '(?:' is known")
        inner = self.alternatives(depth + 1)
        if not self.accept(")"):
            raise PatternError("a '(' is not closed")
        return inner

    def escape(self) -> frozenset[str]:
        character = self.take()
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character.isalnum():
            raise PatternError(f"the escape \\{character} is not known here")
        return frozenset(character) & _ALL

    def bracket(self) -> frozenset[str]:
        negated = self.accept("^")
        allowed: set[str] = set()
        first = True
        while first or not self.accept("]"):
            if self.rest.startswith("[:"):
                raise PatternError("named classes such as [:alpha:] are not known here")
            allowed |= self.bracket_item()
            first = False
        return _ALL - allowed if negated else frozenset(allowed) & _ALL

    def bracket_item(self) -> set[str]:
        low = self.take()
        if low == "\\":
            escaped = self.escape_in_bracket()
            if isinstance(escaped, frozenset):
                return set(escaped)
            low = escaped
        if self.peek() != "-" or self.rest[1:2] in ("]", ""):
            return {low}
        self.take()
        high = self.take()
        if high == "\\":
            high = self.take()
        if high < low:
            raise PatternError(f"the range {low}-{high} runs backwards")
        return {character for character in ALPHABET if low <= character <= high}

    def escape_in_bracket(self) -> frozenset[str] | str:
        character = self.take()
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character.isalnum():
            raise PatternError(f"the escape \\{character} is not known here")
        return character
