"""Which calls of the operating system make bytes and names durable."""

import errno
import fcntl
import os
import stat
import sys

import pytest

from headrace.storage import Disk
from headrace.storage.disk.disk import SyncFailed, sync_file

F_FULLFSYNC = 51  # of macOS


class Calls:
    """Stands in for the system's calls: notes each with its kind of file, and fails the full sync if told."""

    def __init__(self):
        self.made = []
        self.full_sync_errno = None

    def note(self, name):
        return lambda fd, *rest: self.made.append((name, _kind(fd), *rest))

    def fcntl(self, fd, command, *rest):
        self.made.append(("fcntl", _kind(fd), command, *rest))
        if self.full_sync_errno is not None:
            raise OSError(self.full_sync_errno, os.strerror(self.full_sync_errno))
        return 0


def _kind(fd):
    return "directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file"


@pytest.fixture
def calls(monkeypatch):
    calls = Calls()
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, calls.note(name), raising=False)
    monkeypatch.setattr(fcntl, "fcntl", calls.fcntl)
    return calls


@pytest.fixture
def mac(calls, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
    return calls


@pytest.fixture
def fd(tmp_path):
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def test_on_macos_files_and_directories_are_synced_to_the_platter(mac, fd, tmp_path):
    sync_file(Disk(), fd, tmp_path)
    assert mac.made == [("fcntl", "file", F_FULLFSYNC), ("fcntl", "directory", F_FULLFSYNC)]


def test_on_macos_a_file_is_replaced_with_full_syncs_only(mac, tmp_path):
    Disk().replace_file(tmp_path / "checkpoint", b"new")
    assert mac.made == [("fcntl", "file", F_FULLFSYNC), ("fcntl", "directory", F_FULLFSYNC)]
    assert (tmp_path / "checkpoint").read_bytes() == b"new"


@pytest.mark.parametrize("reason", [errno.ENOTSUP, errno.ENOTTY])
def test_on_macos_a_file_system_without_full_syncs_gets_plain_ones(mac, fd, tmp_path, reason):
    mac.full_sync_errno = reason
    sync_file(Disk(), fd, tmp_path)
    assert [call for call in mac.made if call[0] != "fcntl"] == [("fsync", "file"), ("fsync", "directory")]


@pytest.mark.parametrize("reason", [errno.EIO, errno.ENOSPC, errno.EINVAL])
def test_on_macos_a_failed_full_sync_surfaces_and_no_plain_one_hides_it(mac, fd, tmp_path, reason):
    mac.full_sync_errno = reason
    with pytest.raises(OSError) as failure:
        Disk().sync_directory(tmp_path)
    assert failure.value.errno == reason
    with pytest.raises(SyncFailed) as failure:
        sync_file(Disk(), fd)
    assert failure.value.errno == reason
    assert {call[0] for call in mac.made} == {"fcntl"}


@pytest.mark.skipif(sys.platform == "darwin", reason="asks for the calls of other systems")
def test_elsewhere_the_data_of_a_file_and_the_names_of_a_directory_are_synced(calls, fd, tmp_path):
    sync_file(Disk(), fd, tmp_path)
    assert calls.made == [("fdatasync", "file"), ("fsync", "directory")]
