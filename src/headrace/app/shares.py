"""Shares as people write them. Pure."""

from headrace.errors import ConfigError

__all__ = ["parse_share"]


def parse_share(name: str, given: str | float | None) -> float | None:
    """A part of 1 from "5 %" or 0.05; None stays None. Raises ConfigError naming the argument."""
    if given is None:
        return None
    text = given.strip() if isinstance(given, str) else given
    try:
        share = float(text.removesuffix("%")) / 100 if isinstance(text, str) else float(text)
        if isinstance(text, str) and not text.endswith("%"):
            raise ValueError
    except ValueError:
        raise ConfigError(f'{name}={given!r} is no share; write "5 %", 0.05, or None for no alert') from None
    if not 0 <= share <= 1:
        raise ConfigError(f"{name}={given!r} is not between 0 and 100 %")
    return share
