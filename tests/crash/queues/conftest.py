"""The way to this folder's own modules, and to the member that tests of queues share."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE, HERE.parents[1] / "integration"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
