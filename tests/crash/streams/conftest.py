"""The way to the modules beside this file, and what their tests share."""

import sys
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)


@pytest.fixture
def stores(postgres, tmp_path):
    """An address for each kind of store that outlives a process."""
    return {
        "sqlite": f"sqlite:///{tmp_path}/views.db",
        "postgresql": postgres.url(),
        "parquet": f"parquet:///{tmp_path}/parquet",
    }
