"""How many cases a costly property is tried with."""

import os


def examples(count: int) -> int:
    """So many by default, and HEADRACE_EXAMPLES times as many where that is set, as in the campaign."""
    return count * int(os.environ.get("HEADRACE_EXAMPLES", "1"))
