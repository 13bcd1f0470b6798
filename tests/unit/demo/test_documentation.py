"""The page of the demonstration shows the application as it is."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_page_shows_the_application_line_by_line():
    (shown,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "guides" / "demo.md").read_text(), re.S)
    assert shown == (ROOT / "src" / "headrace" / "demo" / "shop.py").read_text()


def test_the_demonstration_itself_imports_no_spark():
    program = "import headrace.demo, sys; sys.exit(any(name.startswith('pyspark') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
