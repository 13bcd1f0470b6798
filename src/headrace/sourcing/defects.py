"""Defects of an application's own functions, as the messages of its server tell of them."""

import os
import traceback
from pathlib import Path
from typing import Final

__all__ = ["told"]

_OURS: Final = str(Path(__file__).parents[1]) + os.sep


def told(error: BaseException, *, is_personal: bool) -> str:
    """What went wrong, and where in the application's code, from the outermost call to the innermost.

    Without the error's own text if values in it may be personal.
    """
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [each for each in frames if not each.filename.startswith(_OURS)] or frames[-1:]
    where = "; ".join(f"{each.filename}, line {each.lineno}, in {each.name}" for each in theirs)
    text = "" if is_personal else f": {error}"
    return f"{type(error).__name__}{text}{f' ({where})' if where else ''}"
