"""The way to the package beside this file, and to the bare producer of the integration tests."""

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parents[2] / "integration"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
