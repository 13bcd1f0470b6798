"""The proof: every view recomputed from the log, in batch, and compared with what is served.

The same recomputation tells which records are behind a row, and which rows a record has touched.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.app.verify.command import verified as verified
    from headrace.app.verify.recompute import Verdict as Verdict
    from headrace.app.verify.trace import Affected as Affected
    from headrace.app.verify.trace import Reason as Reason
    from headrace.app.verify.trace import RecordBehind as RecordBehind
    from headrace.app.verify.trace import RecordPlace as RecordPlace
    from headrace.app.verify.trace import affected_rows as affected_rows
    from headrace.app.verify.trace import reason_of as reason_of
    from headrace.app.verify.trace import shown_value as shown_value

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "command": "verified",
        "recompute": "Verdict",
        "trace": "Affected Reason RecordBehind RecordPlace affected_rows reason_of shown_value",
    },
)
