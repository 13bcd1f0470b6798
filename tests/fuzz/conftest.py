"""The way to the modules beside this file, and to the bare connection of the integration tests."""

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parent.parent / "integration"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
