"""Lets the contract suites import what stands beside them."""

import sys
from pathlib import Path

HERE = str(Path(__file__).parent)
if HERE not in sys.path:  # pytest imports test files one by one and adds no path of its own
    sys.path.insert(0, HERE)
