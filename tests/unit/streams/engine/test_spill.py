"""Blobs that go by files: what is carried instead, and what is left behind."""

import pytest

from headrace import crash_points
from headrace.errors import DiskError
from headrace.streams.engine.messages import BlobKind
from headrace.streams.engine.spill import SpillFiles


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "spill"


def files(folder):
    return sorted(each.read_bytes() for each in folder.iterdir()) if folder.exists() else []


def test_a_large_blob_is_read_from_its_file_by_another_process(folder):
    carried = SpillFiles(folder, min_bytes=5).sent(BlobKind.CHANGES, b"large")
    assert carried[0] is BlobKind.SPILLED
    assert b"large" not in carried[1]
    assert files(folder) == [b"large"]
    there = SpillFiles(folder, min_bytes=5)
    assert there.received(*carried) == (BlobKind.CHANGES, b"large")
    assert there.received(*carried) == (BlobKind.CHANGES, b"large")  # by a second attempt


def test_a_small_blob_is_carried_as_it_is(folder):
    spill = SpillFiles(folder, min_bytes=6)
    assert spill.sent(BlobKind.CHANGES, b"small") == (BlobKind.CHANGES, b"small")
    assert spill.received(BlobKind.CHANGES, b"small") == (BlobKind.CHANGES, b"small")
    assert files(folder) == []


def test_without_a_folder_everything_is_carried():
    assert SpillFiles().sent(BlobKind.PARTIAL, bytes(1 << 20)) == (BlobKind.PARTIAL, bytes(1 << 20))


def test_attempts_of_a_task_write_files_of_their_own(folder):
    spill = SpillFiles(folder, min_bytes=1)
    first, second = spill.sent(BlobKind.ROWS, b"same"), spill.sent(BlobKind.ROWS, b"same")
    assert first != second
    assert files(folder) == [b"same", b"same"]


def test_all_are_removed_and_more_may_come(folder):
    spill = SpillFiles(folder, min_bytes=1)
    spill.sent(BlobKind.ROWS, b"of a batch that is done")
    spill.remove_all()
    assert files(folder) == []
    spill.remove_all()
    assert spill.received(*spill.sent(BlobKind.ROWS, b"next")) == (BlobKind.ROWS, b"next")


def test_a_disk_that_refuses_is_named_with_what_to_do(tmp_path):
    (tmp_path / "spill").write_text("in the way")
    with pytest.raises(DiskError, match=r"spill.*make room or correct the permissions"):
        SpillFiles(tmp_path / "spill", min_bytes=1).sent(BlobKind.ROWS, b"blob")


def test_the_file_is_whole_when_the_step_is_told(folder, monkeypatch):
    seen = []
    monkeypatch.setattr(crash_points, "_watchers", [lambda step: seen.append((step, files(folder)))])
    SpillFiles(folder, min_bytes=1).sent(BlobKind.ROWS, b"blob")
    assert seen == [("spill file written", [b"blob"])]
