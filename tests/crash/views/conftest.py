"""The way to the modules beside this file and beside the contract suite."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
for each in (HERE, HERE.parents[1] / "contract"):
    if str(each) not in sys.path:
        sys.path.insert(0, str(each))
