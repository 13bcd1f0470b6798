"""How long to wait before a delivery is retried. Pure: randomness is passed in."""

from dataclasses import dataclass
from random import Random

from headrace.errors import ConfigError

__all__ = ["LONGEST_ASKED_S", "Backoff"]

# A receiver may ask for a longer wait (Retry-After), up to this.
LONGEST_ASKED_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential with full jitter: anything up to a bound that doubles with every failure.

    Jitter over the whole range keeps hooks that failed together from coming back
    together. After `tries` failures there is no further wait: the record is given up.
    """

    first_s: float = 1.0
    longest_s: float = 600.0
    tries: int = 20

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise ConfigError(f"tries={self.tries} would never send anything; use 1 or more")
        if not 0 < self.first_s <= self.longest_s:
            raise ConfigError(
                f"the first wait ({self.first_s:g} s) must be positive and at most the longest "
                f"({self.longest_s:g} s)"
            )

    def wait_s(self, failures: int, random: Random, asked_s: float | None = None) -> float | None:
        """The wait after so many failures, at least as long as the receiver asked; None to give up."""
        if failures >= self.tries:
            return None
        jittered = random.uniform(0, self.bound_s(failures))
        return max(jittered, min(asked_s or 0.0, LONGEST_ASKED_S))

    def bound_s(self, failures: int) -> float:
        """The longest wait after so many failures."""
        doublings = min(max(failures, 1) - 1, 64)  # enough for any bound, and no overflow
        return min(self.longest_s, self.first_s * 2.0**doublings)
