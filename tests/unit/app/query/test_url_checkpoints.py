"""Manifests and checkpoints at a URL, and what cannot be kept there."""

from dataclasses import replace

import pytest

from headrace.app.options import RunOptions
from headrace.app.query.checkpoint.at_url import UrlCheckpoints, reading_place, refuse_local_stores
from headrace.app.query.checkpoint.manifest import Manifest
from headrace.errors import ConfigError, CorruptionError
from headrace.objects import open_objects


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/objects"


def begun(tmp_path, url, machine, *, epoch, manifest=None):
    """A run on a machine that has begun the first batch of a query."""
    data = tmp_path / machine
    checkpoints = UrlCheckpoints(url, data)
    checkpoints.pull()
    folder = data / "queries" / "orders"
    manifest = manifest or Manifest.read(folder) or Manifest.new({"version": 2}, 8)
    manifest.write(folder)
    checkpoints.claimed(epoch)
    checkpoints.publish([folder])
    for name in ("metadata", "offsets/0"):
        (folder / "checkpoint" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "checkpoint" / name).write_text(f"{name} of {machine}")
    checkpoints.records(folder, manifest.query_id, lambda: None).begin(0)
    return manifest


def test_a_machine_gets_the_newest_manifest_and_the_files_of_its_newest_record(tmp_path, url):
    first = begun(tmp_path, url, "a", epoch=1)
    second = begun(tmp_path, url, "b", epoch=2, manifest=Manifest.new({"version": 2}, 8))
    assert first.query_id != second.query_id
    there = UrlCheckpoints(url, tmp_path / "c")
    assert there.highest_epoch() == 2
    assert there.pull()
    folder = tmp_path / "c" / "queries" / "orders"
    assert Manifest.read(folder) == second
    assert (folder / "checkpoint" / "offsets" / "0").read_text() == "offsets/0 of b"


def test_what_the_machine_had_of_an_earlier_run_is_replaced(tmp_path, url):
    begun(tmp_path, url, "a", epoch=1)
    stale = tmp_path / "c" / "queries" / "gone"
    stale.mkdir(parents=True)
    UrlCheckpoints(url, tmp_path / "c").pull()
    assert [each.name for each in (tmp_path / "c" / "queries").iterdir()] == ["orders"]


def test_before_the_first_run_there_is_nothing(tmp_path, url):
    there = UrlCheckpoints(url, tmp_path / "c")
    assert (there.highest_epoch(), there.pull()) == (0, False)
    options = RunOptions(data=tmp_path / "c", url=url, bootstrap="log:9092")
    with (
        pytest.raises(ConfigError, match=r"there is nothing at file://.*run the application first"),
        reading_place(options),
    ):
        pass
    with reading_place(replace(options, url=None)) as unchanged:
        assert unchanged.data == tmp_path / "c"


def test_a_damaged_record_is_refused(tmp_path, url):
    begun(tmp_path, url, "a", epoch=1)
    objects = open_objects(url)
    (name,) = [each for each in objects.names("checkpoints") if "manifest" not in each]
    objects.put(name, [objects.get(name)[:-9]])
    with pytest.raises(CorruptionError, match="cannot be used"):
        UrlCheckpoints(url, tmp_path / "c").pull()


def test_an_endpoint_that_takes_nothing_is_refused_before_anything_is_read(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match=r"state cannot be kept at file://.*/file/app"):
        UrlCheckpoints(f"file://{tmp_path}/file/app", tmp_path / "data").require_usable()


@pytest.mark.parametrize("store", ["sqlite:////srv/views.db", "memory://a", "parquet:////srv/views"])
def test_stores_of_one_machine_are_refused_unless_all_share_it(store):
    with pytest.raises(ConfigError, match="view 'v' is kept on this machine"):
        refuse_local_stores({"v": store}, [], "s3://bucket/app")
    refuse_local_stores({"v": store}, [], "file:///shared/app")


def test_stores_that_every_machine_reaches_are_taken_and_plain_dataframes_are_not():
    stores = {"v": "postgresql://db/views", "w": "topic://w"}
    refuse_local_stores(stores, [], "s3://bucket/app")
    with pytest.raises(ConfigError, match="view 'f' is a plain DataFrame"):
        refuse_local_stores(stores, ["f"], "s3://bucket/app")
