"""The way to the `clients` package of the integration tests."""

import sys
from pathlib import Path

INTEGRATION = str(Path(__file__).parents[2] / "integration")
if INTEGRATION not in sys.path:
    sys.path.insert(0, INTEGRATION)
