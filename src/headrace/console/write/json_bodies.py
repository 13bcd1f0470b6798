"""JSON as clients send it and as it goes to the log, with every digit of its whole numbers. Pure.

Python's own reader, not orjson: that would make a float of an integer of 20 digits.
"""

import json
import math
from typing import Any, NoReturn

from headrace.console.problems import ProblemError

__all__ = ["dump_json", "parse_json_body"]


def parse_json_body(body: bytes) -> Any:
    """The value; raises ProblemError for what is not JSON, which NaN and lone surrogates are not."""
    try:
        return json.loads(body, parse_constant=_refuse, parse_float=_float)
    except RecursionError:
        raise _bad("it is nested too deeply") from None
    except ValueError as error:
        raise _bad(str(error)) from None


def dump_json(value: Any) -> bytes:
    """Compact JSON in UTF-8; raises ProblemError for text that is no Unicode."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except RecursionError:
        raise _bad("it is nested too deeply") from None
    except ValueError as error:
        raise _bad(str(error)) from None


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is too large for a number")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _bad(cause: str) -> ProblemError:
    return ProblemError(400, f"the body is not valid JSON: {cause}", kind="bad-body")
