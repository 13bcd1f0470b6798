"""What the traffic says it has sent, over all the processes it has been; pure."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

__all__ = ["Sent"]


class Sent:
    """The last word of every process of the traffic; a word is a total since the process began."""

    def __init__(self) -> None:
        self._words: dict[int, Mapping[str, Any]] = {}

    def note(self, word: Mapping[str, Any]) -> None:
        self._words[word["pid"]] = word

    @property
    def acknowledged(self) -> Counter[str]:
        """Events that the log confirmed, by topic: it must have these, and may have more."""
        return self._total("acknowledged")

    @property
    def faults(self) -> Counter[str]:
        """Of these, the ones with something wrong, by what it is."""
        return self._total("faults")

    @property
    def failed(self) -> int:
        """Events that the log refused."""
        return sum(word["failed"] for word in self._words.values())

    @property
    def behind_s(self) -> float | None:
        """How far behind the clock the traffic is; None before its first word."""
        return next((word["behind_s"] for word in reversed(self._words.values())), None)

    def _total(self, field: str) -> Counter[str]:
        total: Counter[str] = Counter()
        for word in self._words.values():
            total.update(word[field])
        return total
