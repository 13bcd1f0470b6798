from pathlib import Path

import pytest

from headrace.storage import Files, PartitionLog, TopicConfig
from headrace.testing.disk import SimulatedDisk

PATH = Path("partition")


@pytest.fixture
def disk():
    return SimulatedDisk()


@pytest.fixture
def open_log():
    """Opens a partition on a disk, with overrides of the topic's settings by field name."""

    def open_on(disk, *, files=None, **config):
        config.setdefault("index_interval_bytes", 256)
        return PartitionLog.open(PATH, TopicConfig(**config), files=files or Files(disk))

    return open_on
