"""The way to what the integration tests of hooks are made with."""

import sys
from pathlib import Path

HERE = str(Path(__file__).parents[2] / "integration" / "hooks")
if HERE not in sys.path:
    sys.path.insert(0, HERE)
