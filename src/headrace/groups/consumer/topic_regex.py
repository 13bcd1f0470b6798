"""Topic patterns that clients have the broker evaluate, safe whatever the pattern.

Kafka uses RE2, which runs in linear time; Python's `re` can take for ever on a
hostile pattern. So a pattern is parsed here (`regex_syntax`) and turned whole into a deterministic automaton
over the characters a topic name may have, within a budget of work. A pattern that
needs more is refused, and matching a name is one table look-up per character.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from headrace.groups.consumer.regex_syntax import (
    ALPHABET,
    Alternatives,
    Characters,
    End,
    NameStart,
    PatternError,
    RegexNode,
    Repeat,
    Sequence,
    parse,
)

__all__ = ["TopicRegex", "compiled"]

_MAX_STATES: Final = 300
_MAX_WORK: Final = 100_000


class TopicRegex:
    """A pattern that must match a topic's whole name.

    `problem` says why a pattern cannot be used; such a pattern matches nothing.
    """

    def __init__(self, pattern: str, max_length: int) -> None:
        self.pattern = pattern
        self.problem: str | None = None
        self._table: list[dict[str, int]] = []
        self._accepting: set[int] = set()
        try:
            if len(pattern) > max_length:
                raise PatternError(f"it is longer than {max_length} characters")
            self._table, self._accepting = _Compiler().compile(parse(pattern))
        except PatternError as error:
            self.problem = f"the topic pattern {pattern[:80]!r} cannot be used: {error}"

    def matches(self, name: str) -> bool:
        """The pattern covers the whole name."""
        if self.problem:
            return False
        state = 0
        for character in name:
            following = self._table[state].get(character)
            if following is None:
                return False
            state = following
        return state in self._accepting


@lru_cache(maxsize=256)
def compiled(pattern: str, max_length: int) -> TopicRegex:
    """The pattern's automaton, made once."""
    return TopicRegex(pattern, max_length)


class _Compiler:
    """Pattern to non-deterministic to deterministic automaton (subset construction)."""

    def __init__(self) -> None:
        self.characters: list[frozenset[str] | None] = []
        self.targets: list[list[int]] = []
        self.guards: list[type[NameStart | End] | None] = []
        self.work = 0

    def compile(self, node: RegexNode) -> tuple[list[dict[str, int]], set[int]]:
        final = self._state()
        entry = self._build(node, final)
        begin = self._closure({entry}, {NameStart})
        alphabet = self._classes()
        numbers, table, accepting = {begin: 0}, [dict[str, int]()], set[int]()
        todo = [begin]
        while todo:
            subset = todo.pop()
            number = numbers[subset]
            if final in self._closure(subset, {End, NameStart} if subset is begin else {End}):
                accepting.add(number)
            for members in alphabet:
                reached = self._step(subset, members[0])
                if not reached:
                    continue
                if reached not in numbers:
                    numbers[reached] = len(table)
                    table.append({})
                    todo.append(reached)
                table[number].update(dict.fromkeys(members, numbers[reached]))
        return table, accepting

    def _spend(self, amount: int) -> None:
        self.work += amount
        if self.work > _MAX_WORK:
            raise PatternError("it needs too much work; make it simpler")

    def _state(
        self,
        *targets: int,
        characters: frozenset[str] | None = None,
        guard: type[NameStart | End] | None = None,
    ) -> int:
        if len(self.targets) >= _MAX_STATES:
            raise PatternError("it is too large once its repetitions are written out; make it simpler")
        self.characters.append(characters)
        self.targets.append(list(targets))
        self.guards.append(guard)
        return len(self.targets) - 1

    def _build(self, node: RegexNode, following: int) -> int:
        """The state at which the node begins, when `following` is where it ends."""
        self._spend(1)
        match node:
            case Characters(allowed):
                return self._state(following, characters=allowed)
            case Sequence(parts):
                for part in reversed(parts):
                    following = self._build(part, following)
                return following
            case Alternatives(parts):
                return self._state(*[self._build(part, following) for part in parts])
            case Repeat():
                return self._build_repeat(node, following)
            case NameStart() | End():
                return self._state(following, guard=type(node))

    def _build_repeat(self, node: Repeat, following: int) -> int:
        if node.most is None:
            loop = self._state(following)
            self.targets[loop].append(self._build(node.part, loop))
            entry = loop
        else:
            entry = following
            for _ in range(node.most - node.least):
                entry = self._state(following, self._build(node.part, entry))
        for _ in range(node.least):
            entry = self._build(node.part, entry)
        return entry

    def _closure(self, states: Iterable[int], passing: set[type[NameStart | End]]) -> frozenset[int]:
        """Everything reachable without reading a character."""
        seen, todo = set(states), list(states)
        while todo:
            state = todo.pop()
            self._spend(1)
            guard = self.guards[state]
            if self.characters[state] is not None or (guard is not None and guard not in passing):
                continue
            fresh = [target for target in self.targets[state] if target not in seen]
            seen.update(fresh)
            todo.extend(fresh)
        return frozenset(seen)

    def _step(self, states: frozenset[int], character: str) -> frozenset[int]:
        self._spend(len(states))
        reached = {
            target
            for state in states
            if character in (self.characters[state] or ())
            for target in self.targets[state]
        }
        return self._closure(reached, set())

    def _classes(self) -> list[str]:
        """Characters that no part of the pattern tells apart, together."""
        distinct = sorted({chars for chars in self.characters if chars is not None}, key=sorted)
        groups: dict[tuple[bool, ...], str] = {}
        for character in ALPHABET:
            self._spend(len(distinct))
            key = tuple(character in chars for chars in distinct)
            groups[key] = groups.get(key, "") + character
        return list(groups.values())
