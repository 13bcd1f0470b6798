"""Defects of an application's own functions, as the messages of its server tell of them."""

import traceback

__all__ = ["told"]


def told(error: BaseException, *, is_personal: bool) -> str:
    """What went wrong and where; without the error's own text if values in it may be personal."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" ({each.filename}, line {each.lineno}, in {each.name})" for each in last)
    text = "" if is_personal else f": {error}"
    return f"{type(error).__name__}{text}{where}"
