"""Data of earlier versions, opened by this one."""

import pytest
from tests.integration.upgrade.earlier import Versions, versions_in


@pytest.fixture(scope="session")
def earlier(tmp_path_factory) -> Versions:
    """A version by its commit; the test is skipped where the history does not have it."""
    return versions_in(tmp_path_factory.mktemp("versions"))
