"""What the error tree says of whose fault it is, and whether to try again."""

import errno
import os
from pathlib import Path

import pytest

from headrace.errors import DiskError


@pytest.mark.parametrize(
    ("code", "full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EACCES, False), (errno.EIO, False)]
)
def test_a_disk_that_refuses_is_full_only_where_room_would_help(code, full):
    refused = DiskError.at(Path("views/rows"), OSError(code, os.strerror(code)))
    assert refused.full == full
    assert str(refused) == f"views/rows: {os.strerror(code)}; make room or correct the permissions"
