"""A view and what a rebuild has made of it: the comparison, and the rebuild that waits for a decision.

`comparison.py` says, row by row, what differs; `held.py` keeps that in a file of the data folder, together
with the decision to show the rebuilt view, so that both outlive the processes concerned.
"""

from headrace.views.rebuilt.comparison import Comparison, RowDifference, compare_versions, differing_rows
from headrace.views.rebuilt.held import HoldState, RebuildRequest, Rebuilds

__all__ = [
    "Comparison",
    "HoldState",
    "RebuildRequest",
    "Rebuilds",
    "RowDifference",
    "compare_versions",
    "differing_rows",
]
