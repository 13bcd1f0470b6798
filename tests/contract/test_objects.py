"""What every folder of objects promises, on memory, a disk and an S3."""

import contextlib
import itertools

import pytest

from headrace.errors import ConfigError, RetriableError
from headrace.objects import MemoryObjects, check_probe, leave_probe, open_objects, remove_probe
from headrace.testing.s3 import s3_server

_numbers = itertools.count()


@pytest.fixture(scope="module")
def bucket():
    pytest.importorskip("moto", reason="moto is not installed; `make setup` does so")
    with s3_server() as url:
        yield url


@pytest.fixture(params=["memory", "disk", "s3"])
def objects(request, tmp_path):
    if request.param == "memory":
        return MemoryObjects()
    if request.param == "disk":
        return open_objects(f"file://{tmp_path}/objects")
    return open_objects(f"{request.getfixturevalue('bucket')}/{next(_numbers)}")


def test_an_object_is_read_as_it_was_put(objects):
    objects.put("a/b", [b"one", b"", b"two"])
    assert objects.get("a/b") == b"onetwo"


def test_an_object_that_was_put_again_is_the_newer_one(objects):
    objects.put("a/1", [b"a longer first one"])
    objects.put("a/1", [b"second"])
    assert (objects.get("a/1"), objects.names("a")) == (b"second", ["a/1"])


def test_what_is_not_there_is_none(objects):
    assert objects.get("a/b") is None


def test_all_objects_below_a_folder_are_listed_and_no_others(objects):
    for name in ("a/2", "a/1", "a/b/3", "ab/4", "c"):
        objects.put(name, [b""])
    assert objects.names("a") == ["a/1", "a/2", "a/b/3"]
    assert objects.names("nothing") == []


def test_removed_objects_are_gone_and_removing_again_is_harmless(objects):
    objects.put("a/1", [b"1"])
    objects.put("a/2", [b"2"])
    objects.remove(["a/1", "a/1", "a/0"])
    assert (objects.names("a"), objects.get("a/1")) == (["a/2"], None)


def test_a_large_object_is_whole(objects):
    parts = [bytes([number]) * (3 << 20) for number in range(5)]
    objects.put("large", parts)
    assert objects.get("large") == b"".join(parts)


def test_a_probe_is_found_and_answered(objects):
    token = leave_probe(objects)
    assert [check_probe(objects, token) for _ in range(2)] == ["", ""]
    assert remove_probe(objects, token) == 2
    assert objects.names("probes") == []


def test_a_probe_that_was_left_elsewhere_is_missed(objects):
    token = leave_probe(MemoryObjects())
    assert "does not see the driver's objects" in check_probe(objects, token)


def test_a_put_that_fails_leaves_the_object_as_it_was(tmp_path):
    objects = open_objects(f"file://{tmp_path}/objects")
    objects.put("a", [b"first"])
    with pytest.raises(TypeError):
        objects.put("a", [b"second", None])
    assert (objects.get("a"), [each.name for each in (tmp_path / "objects").iterdir()]) == (b"first", ["a"])


def test_a_bucket_that_is_not_there_is_refused_with_what_to_do(bucket):
    objects = open_objects(bucket.replace("bucket", "missing") + "/app")
    with pytest.raises(RetriableError, match="a at s3://missing/app cannot be written"):
        objects.put("a", [b""])
    with pytest.raises(ConfigError, match="see that the bucket exists"):
        leave_probe(objects)
    with contextlib.suppress(RetriableError):
        assert objects.names("a") == []
