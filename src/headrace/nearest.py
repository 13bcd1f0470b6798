"""What somebody who misspelt a name may have meant. Pure."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["nearest", "no_such"]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one, in whatever case; None if none is."""
    by_lower = {each.lower(): each for each in known}
    found = get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[found[0]] if found else None


def no_such(what: str, name: str, known: Iterable[str]) -> str:
    """`there is no column 'tmp'; did you mean 'temp'? There is device, temp, at`."""
    listed = list(known)
    meant = nearest(name, listed)
    if meant is not None:
        return f"there is no {what} {name!r}; did you mean {meant!r}? There is {', '.join(listed)}"
    return f"there is no {what} {name!r}; there is {', '.join(listed) or 'none'}"
